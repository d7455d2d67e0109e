// Load on one NATS server with JetStream. A job is a line of standard input, "WAY BYTES BATCH CONNECTIONS
// MILLISECONDS TOPIC", and answered by a line of JSON: how many events were acknowledged, in how much time,
// and how long each took.
//
// Ways: "atomic", each connection sends batches that are stored as a whole; "async", each connection has a
// bounded number of events on their way; "single", each connection waits for each event.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

const (
	values = 1000
	// The server takes no larger atomic batch.
	largestBatch = 1000
	// Events on their way, of all connections that publish asynchronously.
	window  = 4096
	patient = 30 * time.Second
)

type job struct {
	way                       string
	bytes, batch, connections int
	milliseconds              int
	topic                     string
}

// sender sends until the deadline, and says how many events were acknowledged and how long each took.
type sender func(js jetstream.JetStream, j job, pool [][]byte, deadline time.Time) (int, []time.Duration, error)

var ways = map[string]sender{"atomic": atomically, "async": asynchronously, "single": oneByOne}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var j job
		_, err := fmt.Sscan(lines.Text(), &j.way, &j.bytes, &j.batch, &j.connections, &j.milliseconds, &j.topic)
		check(err)
		if err := perform(os.Args[1], j); err != nil {
			fmt.Printf(`{"failed":%q}`+"\n", err.Error())
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func perform(url string, j job) error {
	send, known := ways[j.way]
	if !known {
		return fmt.Errorf("there is no way %q", j.way)
	}
	connections := make([]jetstream.JetStream, j.connections)
	for i := range connections {
		connection, err := nats.Connect(url)
		if err != nil {
			return err
		}
		defer connection.Close()
		if connections[i], err = jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(window/j.connections)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	_, err := connections[0].CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: j.topic, Subjects: []string{j.topic},
		Storage: jetstream.FileStorage, AllowAtomicPublish: true})
	if err != nil {
		return err
	}
	pool := payloads(j.bytes)
	start := time.Now()
	deadline := start.Add(time.Duration(j.milliseconds) * time.Millisecond)
	var (
		senders sync.WaitGroup
		mutex   sync.Mutex
		events  int
		times   []time.Duration
		failure error
	)
	for _, js := range connections {
		senders.Go(func() {
			sent, took, err := send(js, j, pool, deadline)
			mutex.Lock()
			defer mutex.Unlock()
			events, times = events+sent, append(times, took...)
			if err != nil {
				failure = err
			}
		})
	}
	senders.Wait()
	seconds := time.Since(start).Seconds()
	if failure != nil {
		return failure
	}
	slices.Sort(times)
	fmt.Printf(`{"events":%d,"seconds":%f,"p50_us":%d,"p99_us":%d,"p999_us":%d}`+"\n", events, seconds,
		at(times, 0.5), at(times, 0.99), at(times, 0.999))
	return nil
}

func atomically(js jetstream.JetStream, j job, pool [][]byte, deadline time.Time) (events int, times []time.Duration, err error) {
	batch := make([]*nats.Msg, min(j.batch, largestBatch))
	for i := range batch {
		batch[i] = &nats.Msg{Subject: j.topic, Data: pool[i%len(pool)], Header: nats.Header{}}
	}
	for time.Now().Before(deadline) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		_, err = jetstreamext.PublishMsgBatch(ctx, js, batch, jetstreamext.BatchFlowControl{AckFirst: false})
		cancel()
		if err != nil {
			return
		}
		events += len(batch)
		times = append(times, time.Since(start))
	}
	return
}

func asynchronously(js jetstream.JetStream, j job, pool [][]byte, deadline time.Time) (events int, times []time.Duration, err error) {
	waiting := make(chan jetstream.PubAckFuture, window/j.connections)
	done := make(chan error, 1)
	go func() {
		var first error
		for future := range waiting {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				first = err
			}
		}
		done <- first
	}()
	for time.Now().Before(deadline) {
		future, failure := js.PublishAsync(j.topic, pool[events%len(pool)], jetstream.WithStallWait(patient))
		if failure != nil {
			err = failure
			break
		}
		waiting <- future
		events++
	}
	close(waiting)
	if failure := <-done; err == nil {
		err = failure
	}
	return
}

func oneByOne(js jetstream.JetStream, j job, pool [][]byte, deadline time.Time) (events int, times []time.Duration, err error) {
	for time.Now().Before(deadline) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		_, err = js.Publish(ctx, j.topic, pool[events%len(pool)])
		cancel()
		if err != nil {
			return
		}
		times = append(times, time.Since(start))
		events++
	}
	return
}

func at(sorted []time.Duration, share float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*share))].Microseconds()
}

// payloads are letters at random, in the shape of JSON.
func payloads(bytes int) [][]byte {
	random := rand.New(rand.NewSource(7))
	pool := make([][]byte, values)
	for i := range pool {
		text := fmt.Appendf(nil, `{"user":"user-%05d","text":"`, i)
		for len(text) < bytes-2 {
			text = append(text, byte('a'+random.Intn(26)))
		}
		pool[i] = append(text, '"', '}')
	}
	return pool
}
