// Package member has what the consumers in Go share: their arguments and the lines they write.
package member

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"
	"time"
)

// Arguments say what to consume, as which member.
type Arguments struct {
	Bootstrap  []string
	Group      string
	Topics     []string
	Strategies []string
	ClientID   string
	InstanceID string
	Session    time.Duration
	Heartbeat  time.Duration
	Login      *Login
}

// Login is who logs in over TLS, by SCRAM-SHA-512.
type Login struct {
	User, Password string
	TLS            *tls.Config
}

// readLogin reads a file with a line name=value for ca, user and password.
func readLogin(path string) *Login {
	if path == "" {
		return nil
	}
	parts := map[string]string{}
	for _, line := range strings.Split(string(read(path)), "\n") {
		name, value, _ := strings.Cut(line, "=")
		parts[name] = value
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(read(parts["ca"]))
	return &Login{parts["user"], parts["password"], &tls.Config{RootCAs: trusted}}
}

func read(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return content
}

// Parse reads the command line. Ten heartbeats fit into a session.
func Parse() Arguments {
	bootstrap := flag.String("bootstrap", "", "host:port,...")
	group := flag.String("group", "", "")
	topics := flag.String("topics", "", "topic,...")
	strategies := flag.String("strategy", "", "range, roundrobin, sticky, cooperative-sticky")
	clientID := flag.String("client-id", "", "")
	instanceID := flag.String("instance-id", "", "")
	sessionMs := flag.Int("session-timeout-ms", 10000, "")
	login := flag.String("login", "", "a file with ca, user and password")
	flag.Parse()

	session := time.Duration(*sessionMs) * time.Millisecond
	return Arguments{
		Bootstrap:  strings.Split(*bootstrap, ","),
		Group:      *group,
		Topics:     strings.Split(*topics, ","),
		Strategies: strings.Split(*strategies, ","),
		ClientID:   *clientID,
		InstanceID: *instanceID,
		Session:    session,
		Heartbeat:  session / 10,
		Login:      readLogin(*login),
	}
}

// Partition is a topic and a number, written as a list of the two.
type Partition struct {
	Topic  string
	Number int32
}

// MarshalJSON writes ["topic", 0].
func (p Partition) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.Topic, p.Number})
}

// Committed is a partition and the offset of the next message to consume: ["topic", 0, 42].
type Committed struct {
	Partition
	Offset int64
}

// MarshalJSON writes ["topic", 0, 42].
func (c Committed) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{c.Topic, c.Number, c.Offset})
}

// Message is a consumed message.
type Message struct {
	Event     string `json:"event"`
	AtMs      int64  `json:"at_ms"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Value     string `json:"value"`
}

type change struct {
	Event      string      `json:"event"`
	AtMs       int64       `json:"at_ms"`
	Partitions []Partition `json:"partitions"`
}

type committed struct {
	Event   string      `json:"event"`
	AtMs    int64       `json:"at_ms"`
	Offsets []Committed `json:"offsets"`
}

type failure struct {
	Event   string `json:"event"`
	AtMs    int64  `json:"at_ms"`
	Message string `json:"message"`
}

var mutex sync.Mutex

func write(event any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	mutex.Lock()
	defer mutex.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func nowMs() int64 { return time.Now().UnixMilli() }

// SayChanged writes that partitions are "assigned", "revoked" or "lost".
func SayChanged(event string, partitions []Partition) {
	if partitions == nil {
		partitions = []Partition{}
	}
	write(change{event, nowMs(), partitions})
}

// SayMessage writes a message that was consumed.
func SayMessage(topic string, partition int32, offset int64, value []byte) {
	write(Message{"message", nowMs(), topic, partition, offset, string(value)})
}

// SayCommitted writes what the coordinator has accepted.
func SayCommitted(offsets []Committed) { write(committed{"committed", nowMs(), offsets}) }

// SayError writes what the client complains of.
func SayError(err error) { write(failure{"error", nowMs(), err.Error()}) }
