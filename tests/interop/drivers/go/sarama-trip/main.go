// A round trip by sarama, which leaves SCRAM to another package.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
	"kgroup/drivers/trip"
)

type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

var hashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypeSCRAMSHA256: sha256.New,
	sarama.SASLTypeSCRAMSHA512: sha512.New,
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func settings(t trip.Trip) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_3_0_0 // sarama asks no broker for its versions
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	if tls := t.TLS(); tls != nil {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = tls
	}
	if t.Mechanism != "" {
		login := &config.Net.SASL
		login.Enable = true
		login.Mechanism = sarama.SASLMechanism(t.Mechanism)
		login.User = t.User
		login.Password = t.Secret
		login.TokenProvider = token(t.Secret)
		login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &scramClient{hash: hashes[t.Mechanism]}
		}
	}
	return config
}

// reader consumes the messages of the one partition until it has all.
type reader struct {
	wanted int
	values []string
	done   context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.values = append(r.values, string(message.Value))
		session.MarkMessage(message, "")
		if len(r.values) == r.wanted {
			session.Commit()
			r.done()
			return nil
		}
	}
	return nil
}

func travel(t trip.Trip) error {
	client, err := sarama.NewClient([]string{t.Bootstrap}, settings(t))
	if err != nil {
		return err
	}
	defer client.Close()

	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, value := range t.Values {
		message := &sarama.ProducerMessage{Topic: t.Topic, Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
		time.Sleep(t.Pause)
	}

	group, err := sarama.NewConsumerGroupFromClient(t.Group, client)
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, done := context.WithTimeout(context.Background(), trip.Timeout)
	defer done()
	consumed := &reader{wanted: len(t.Values), done: done}
	if err := group.Consume(ctx, []string{t.Topic}, consumed); err != nil {
		return err
	}
	trip.SayConsumed(consumed.values)
	return nil
}

func main() {
	wrong, right := trip.Read()
	if err := travel(wrong); err != nil {
		trip.SayRefused(err)
	}
	trip.Check(travel(right))
}
