// A member of a group by sarama.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/IBM/sarama"
	"kgroup/drivers/member"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange,
	"roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky":     sarama.NewBalanceStrategySticky,
}

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	member.SayChanged("assigned", claimed(session))
	return nil
}

func (handler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	member.SayChanged("revoked", claimed(session))
	return nil
}

// ConsumeClaim writes and commits the messages of one partition. A commit that fails is an error
// of the group, which says nothing of it here: "committed" means that the commit has ended.
func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	partition := member.Partition{Topic: claim.Topic(), Number: claim.Partition()}
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			member.SayMessage(message.Topic, message.Partition, message.Offset, message.Value)
			session.MarkMessage(message, "")
			// All that is there is committed at once.
			if len(claim.Messages()) == 0 {
				session.Commit()
				committed := member.Committed{Partition: partition, Offset: message.Offset + 1}
				member.SayCommitted([]member.Committed{committed})
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func claimed(session sarama.ConsumerGroupSession) []member.Partition {
	var partitions []member.Partition
	for topic, numbers := range session.Claims() {
		for _, number := range numbers {
			partitions = append(partitions, member.Partition{Topic: topic, Number: number})
		}
	}
	return partitions
}

func main() {
	arguments := member.Parse()
	config := sarama.NewConfig()
	config.Version = sarama.V2_3_0_0 // sarama asks no broker for its versions
	config.ClientID = arguments.ClientID
	config.Consumer.Group.InstanceId = arguments.InstanceID
	config.Consumer.Group.Session.Timeout = arguments.Session
	config.Consumer.Group.Heartbeat.Interval = arguments.Heartbeat
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Rebalance.GroupStrategies = nil
	for _, name := range arguments.Strategies {
		strategy := strategies[name]()
		config.Consumer.Group.Rebalance.GroupStrategies =
			append(config.Consumer.Group.Rebalance.GroupStrategies, strategy)
	}

	group, err := sarama.NewConsumerGroup(arguments.Bootstrap, arguments.Group, config)
	if err != nil {
		member.SayError(err)
		os.Exit(1)
	}
	go func() {
		for err := range group.Errors() {
			member.SayError(err)
		}
	}()

	// A call ends with each generation, or with an error.
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for stopped.Err() == nil {
		err := group.Consume(stopped, arguments.Topics, handler{})
		if err != nil && !errors.Is(err, context.Canceled) {
			member.SayError(err)
		}
	}
	if err := group.Close(); err != nil {
		member.SayError(err)
		os.Exit(1)
	}
}
