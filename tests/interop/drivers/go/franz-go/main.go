// A member of a group by franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"kgroup/drivers/member"
)

const pollFor = 100 * time.Millisecond

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// uncommitted has the last message of each partition that was written and not committed.
type uncommitted map[string]map[int32]*kgo.Record

func (u uncommitted) add(record *kgo.Record) {
	if u[record.Topic] == nil {
		u[record.Topic] = map[int32]*kgo.Record{}
	}
	u[record.Topic][record.Partition] = record
}

func (u uncommitted) forget(partitions map[string][]int32) {
	for topic, numbers := range partitions {
		for _, number := range numbers {
			delete(u[topic], number)
		}
	}
}

// commit commits all there is, and keeps what was refused for the next time.
func (u uncommitted) commit(client *kgo.Client) {
	var records []*kgo.Record
	var offsets []member.Committed
	for topic, partitions := range u {
		for number, record := range partitions {
			records = append(records, record)
			partition := member.Partition{Topic: topic, Number: number}
			offsets = append(offsets, member.Committed{Partition: partition, Offset: record.Offset + 1})
		}
	}
	if len(records) == 0 {
		return
	}
	if err := client.CommitRecords(context.Background(), records...); err != nil {
		member.SayError(fmt.Errorf("commit: %w", err))
		return
	}
	member.SayCommitted(offsets)
	for topic := range u {
		delete(u, topic)
	}
}

func sayChanged(event string, numbers map[string][]int32) {
	var partitions []member.Partition
	for topic := range numbers {
		for _, number := range numbers[topic] {
			partitions = append(partitions, member.Partition{Topic: topic, Number: number})
		}
	}
	member.SayChanged(event, partitions)
}

func main() {
	arguments := member.Parse()
	var strategies []kgo.GroupBalancer
	for _, name := range arguments.Strategies {
		strategies = append(strategies, balancers[name]())
	}

	// Callbacks run between two polls, because polls block rebalances: no lock is needed.
	pending := uncommitted{}
	options := []kgo.Opt{
		kgo.SeedBrokers(arguments.Bootstrap...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
		kgo.ClientID(arguments.ClientID),
		kgo.ConsumerGroup(arguments.Group),
		kgo.ConsumeTopics(arguments.Topics...),
		kgo.Balancers(strategies...),
		kgo.SessionTimeout(arguments.Session),
		kgo.HeartbeatInterval(arguments.Heartbeat),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			sayChanged("assigned", added)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, client *kgo.Client, gone map[string][]int32) {
			pending.commit(client)
			pending.forget(gone)
			sayChanged("revoked", gone)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
			pending.forget(gone)
			sayChanged("lost", gone)
		}),
	}
	if arguments.InstanceID != "" {
		options = append(options, kgo.InstanceID(arguments.InstanceID))
	}
	if login := arguments.Login; login != nil {
		user := scram.Auth{User: login.User, Pass: login.Password}
		options = append(options, kgo.DialTLSConfig(login.TLS), kgo.SASL(user.AsSha512Mechanism()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		member.SayError(err)
		os.Exit(1)
	}

	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopped.Err() == nil {
		ctx, cancel := context.WithTimeout(stopped, pollFor)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				member.SayError(fmt.Errorf("%s-%d: %w", topic, partition, err))
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			member.SayMessage(record.Topic, record.Partition, record.Offset, record.Value)
			pending.add(record)
		})
		pending.commit(client)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
