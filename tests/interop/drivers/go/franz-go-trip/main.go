// A round trip by franz-go.
package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"kgroup/drivers/trip"
)

func mechanism(t trip.Trip) sasl.Mechanism {
	switch t.Mechanism {
	case "PLAIN":
		return plain.Auth{User: t.User, Pass: t.Secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: t.User, Pass: t.Secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: t.User, Pass: t.Secret}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: t.Secret}.AsMechanism()
	}
}

func connect(t trip.Trip) *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(t.Bootstrap),
		kgo.ConsumerGroup(t.Group),
		kgo.ConsumeTopics(t.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	}
	if config := t.TLS(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if t.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(t)))
	}
	client, err := kgo.NewClient(options...)
	trip.Check(err)
	return client
}

func travel(ctx context.Context, t trip.Trip) error {
	client := connect(t)
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for _, value := range t.Values {
		record := &kgo.Record{Topic: t.Topic, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		time.Sleep(t.Pause)
	}

	var values []string
	for len(values) < len(t.Values) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	trip.SayConsumed(values)
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), trip.Timeout)
	defer cancel()
	wrong, right := trip.Read()
	if err := travel(ctx, wrong); err != nil {
		trip.SayRefused(err)
	}
	trip.Check(travel(ctx, right))
}
