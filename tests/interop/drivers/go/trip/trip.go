// Package trip has what the round trips in Go share: what they are asked to do, and the lines they
// write. A round trip is a first attempt with a wrong secret, which must be refused, and then a
// login by which the client produces, consumes as a member of a group, and commits.
package trip

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
)

// Timeout is for all that a client does, either way.
const Timeout = 30 * time.Second

// Trip says where to go, and as whom. The secret is a password, a token, or a PEM file with a key.
// Pause is the time between two values.
type Trip struct {
	Bootstrap, Topic, Group string
	Protocol, Mechanism     string
	User, Secret            string
	CA                      string
	Values                  []string
	Pause                   time.Duration
}

// Read reads standard input, which has a line name=value for each part. The first trip is the one
// with the wrong secret.
func Read() (wrong, right Trip) {
	given := map[string]string{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		given[name] = value
	}
	pauseMs, err := strconv.Atoi(given["pause_ms"])
	Check(err)
	right = Trip{
		Bootstrap: given["bootstrap"],
		Topic:     given["topic"],
		Group:     given["group"],
		Protocol:  given["protocol"],
		Mechanism: given["mechanism"],
		User:      given["user"],
		Secret:    given["secret"],
		CA:        given["ca"],
		Values:    strings.Split(given["values"], ","),
		Pause:     time.Duration(pauseMs) * time.Millisecond,
	}
	wrong = right
	wrong.Secret = given["wrong_secret"]
	return wrong, right
}

// TLS returns the settings of TLS, or nil where there is none.
func (t Trip) TLS() *tls.Config {
	if !strings.HasSuffix(t.Protocol, "SSL") {
		return nil
	}
	pem, err := os.ReadFile(t.CA)
	Check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: trusted}
	if t.Mechanism == "" {
		certificate, err := tls.LoadX509KeyPair(t.Secret, t.Secret)
		Check(err)
		config.Certificates = []tls.Certificate{certificate}
	}
	return config
}

// SayRefused writes how the client was refused.
func SayRefused(err error) { say(map[string]any{"event": "refused", "message": err.Error()}) }

// SayConsumed writes what was consumed and committed.
func SayConsumed(values []string) { say(map[string]any{"event": "consumed", "values": values}) }

func say(event any) {
	line, err := json.Marshal(event)
	Check(err)
	os.Stdout.Write(append(line, '\n'))
}

// Check ends the process if there is an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
