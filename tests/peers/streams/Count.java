import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A count per key by Kafka Streams, with its step as one transaction (exactly_once_v2), state in RocksDB with a
 * changelog, and an output for every event: arguments BROKER DIR EVENTS KEYS BYTES.
 *
 * <p>Says in lines of JSON how far it is: "filled" when the events lie ready, "half" and "done" as soon as half of them
 * and all of them are committed. The first half is to warm up. In the end the output is read and has to add up.
 */
final class Count {
    private static final String IN = "events", OUT = "counts", APPLICATION = "count";
    private static final int VALUES = 1000, COMMIT_MS = 100, POLL_MS = 10;
    private static final long PATIENCE_MS = 600_000;

    public static void main(String[] arguments) throws Exception {
        String broker = arguments[0], dir = arguments[1];
        long events = Long.parseLong(arguments[2]);
        int keys = Integer.parseInt(arguments[3]), bytes = Integer.parseInt(arguments[4]);
        int threads = Runtime.getRuntime().availableProcessors();
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", broker))) {
            admin.createTopics(List.of(new NewTopic(IN, threads, (short) 1), new NewTopic(OUT, threads, (short) 1)))
                .all().get();
            fill(broker, events, keys, bytes);
            say("filled", events);
            try (KafkaStreams streams = new KafkaStreams(topology(), settings(broker, dir, threads))) {
                streams.start();
                long half = until(admin, streams, events / 2);
                say("half", half);
                until(admin, streams, events);
                say("done", events);
            }
            say("checked", check(broker, threads, events));
        }
    }

    private static org.apache.kafka.streams.Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        var kept = Materialized.<byte[], Long>as(Stores.persistentKeyValueStore("counts"))
            .withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long())
            // With a cache most outputs would be left out.
            .withCachingDisabled();
        builder.stream(IN, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .groupByKey().count(kept).toStream().to(OUT, Produced.with(Serdes.ByteArray(), Serdes.Long()));
        return builder.build();
    }

    private static Properties settings(String broker, String dir, int threads) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, dir);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, threads);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, COMMIT_MS);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // More at a time than by default: small batches and polls would hold it back.
        settings.put(StreamsConfig.producerPrefix("batch.size"), 256 << 10);
        settings.put(StreamsConfig.mainConsumerPrefix("max.poll.records"), 10_000);
        settings.put(StreamsConfig.mainConsumerPrefix("max.partition.fetch.bytes"), 4 << 20);
        return settings;
    }

    private static void fill(String broker, long events, int keys, int bytes) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", broker, "acks", "all", "linger.ms", 5,
            "batch.size", 1 << 20, "buffer.memory", 64L << 20);
        Random random = new Random(1);
        byte[][] values = new byte[VALUES][];
        for (int n = 0; n < VALUES; n++) values[n] = value(random, n, bytes);
        AtomicLong failed = new AtomicLong();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long n = 0; n < events; n++) {
                byte[] key = String.format(Locale.ROOT, "user-%05d", random.nextInt(keys)).getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(IN, key, values[(int) (n % VALUES)]), (at, failure) -> {
                    if (failure != null) failed.incrementAndGet();
                });
            }
        }
        if (failed.get() > 0) throw new IllegalStateException(failed + " events weren't taken");
    }

    private static byte[] value(Random random, int n, int bytes) {
        StringBuilder text = new StringBuilder("{\"n\":" + n + ",\"text\":\"");
        while (text.length() < bytes - 2) text.append(String.format(Locale.ROOT, "%08x", random.nextInt()));
        text.setLength(bytes - 2);
        return text.append("\"}").toString().getBytes(StandardCharsets.US_ASCII);
    }

    /** Waits until so many events are committed, and gives how many are. */
    private static long until(Admin admin, KafkaStreams streams, long events) throws Exception {
        long start = System.nanoTime();
        while (true) {
            long committed = 0;
            var positions = admin.listConsumerGroupOffsets(APPLICATION).partitionsToOffsetAndMetadata().get();
            for (OffsetAndMetadata position : positions.values()) committed += position == null ? 0 : position.offset();
            if (committed >= events) return committed;
            if (streams.state() == KafkaStreams.State.ERROR) throw new IllegalStateException("Kafka Streams gave up");
            if (System.nanoTime() - start > PATIENCE_MS * 1_000_000)
                throw new IllegalStateException("only " + committed + " events are committed");
            Thread.sleep(POLL_MS);
        }
    }

    /** Every count of every key is there once; gives how many outputs there are. */
    private static long check(String broker, int partitions, long events) {
        Map<String, Object> settings = Map.of("bootstrap.servers", broker, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "max.poll.records", 10_000);
        Map<String, Long> last = new ConcurrentHashMap<>();
        long outputs = 0;
        try (KafkaConsumer<byte[], Long> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new LongDeserializer())) {
            consumer.assign(java.util.stream.IntStream.range(0, partitions)
                .mapToObj(partition -> new TopicPartition(OUT, partition)).toList());
            var ends = consumer.endOffsets(consumer.assignment());
            long start = System.nanoTime();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.nanoTime() - start > PATIENCE_MS * 1_000_000)
                    throw new IllegalStateException("the output can't be read to its end");
                for (var event : consumer.poll(java.time.Duration.ofMillis(100))) {
                    last.put(new String(event.key(), StandardCharsets.US_ASCII), event.value());
                    outputs++;
                }
            }
        }
        long sum = last.values().stream().mapToLong(Long::longValue).sum();
        if (sum != events || outputs != events)
            throw new IllegalStateException(events + " events gave " + outputs + " outputs, which add up to " + sum);
        return outputs;
    }

    private static void say(String what, long events) {
        System.out.println("{\"" + what + "\":" + events + "}");
        System.out.flush();
    }
}
