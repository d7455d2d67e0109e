import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Load on one Kafka broker. A job is a line of standard input, "WAY BYTES BATCH CONNECTIONS MILLISECONDS TOPIC",
 * and answered by a line of JSON: how many events were acknowledged, in how much time, and how long each took.
 *
 * <p>Ways: "batch", each connection a producer that gathers batches; "single", each connection a producer that
 * waits for each event; "shared", as many threads as connections that do so with one producer.
 */
final class Load {
    /** As many as the topic of the host that it is compared with. */
    private static final int PARTITIONS = 8;
    private static final int VALUES = 1000;
    /** A batch is gathered for as long, unless it is full before. */
    private static final int LINGER_MS = 5;
    /** What a batch needs beside its values, at most. */
    private static final int OVERHEAD = 16, HEAD = 128;

    private record Job(String way, int bytes, int batch, int connections, long nanos, String topic) {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            String[] word = line.split(" ");
            Job job = new Job(word[0], Integer.parseInt(word[1]), Integer.parseInt(word[2]),
                Integer.parseInt(word[3]), Long.parseLong(word[4]) * 1_000_000, word[5]);
            try {
                createTopic(arguments[0], job.topic);
                System.out.println(perform(arguments[0], job));
            } catch (Exception failure) {
                String said = String.valueOf(failure).replaceAll("[^ -!#-\\[\\]-~]", " ");
                System.out.println("{\"failed\":\"" + said + "\"}");
            }
        }
    }

    private static void createTopic(String broker, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", broker))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        } catch (ExecutionException refused) {
            if (!(refused.getCause() instanceof TopicExistsException)) throw refused;
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String broker, Job job) {
        boolean gathers = job.way.equals("batch");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(Map.of(
            "bootstrap.servers", broker,
            "acks", "all",
            "enable.idempotence", true,
            "compression.type", "none",
            "linger.ms", gathers ? LINGER_MS : 0,
            "batch.size", gathers ? job.batch * (job.bytes + OVERHEAD) + HEAD : 16 << 10,
            "buffer.memory", gathers ? 32L << 20 : 4L << 20,
            "max.request.size", 16 << 20), new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(job.topic);
        return producer;
    }

    private static String perform(String broker, Job job) throws Exception {
        byte[][] values = values(job.bytes);
        int own = job.way.equals("shared") ? 1 : job.connections;
        List<KafkaProducer<byte[], byte[]>> producers =
            java.util.stream.IntStream.range(0, own).mapToObj(i -> producer(broker, job)).toList();
        Times times = new Times();
        AtomicReference<Exception> failure = new AtomicReference<>();
        long start = System.nanoTime();
        Thread[] senders = new Thread[job.connections];
        for (int i = 0; i < senders.length; i++) {
            KafkaProducer<byte[], byte[]> producer = producers.get(i % own);
            int first = i;
            senders[i] = new Thread(() -> {
                try {
                    send(producer, job, values, first, start + job.nanos, times, failure);
                } catch (Exception e) {
                    failure.set(e);
                }
            });
            senders[i].start();
        }
        for (Thread sender : senders) sender.join();
        double seconds = (System.nanoTime() - start) / 1e9;
        producers.forEach(KafkaProducer::close);
        if (failure.get() != null) throw failure.get();
        return times.report(seconds);
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, Job job, byte[][] values, int first, long end,
            Times times, AtomicReference<Exception> failure) throws Exception {
        for (int i = first; System.nanoTime() < end && failure.get() == null; i++) {
            ProducerRecord<byte[], byte[]> event = new ProducerRecord<>(job.topic, values[i % VALUES]);
            long sent = System.nanoTime();
            if (job.way.equals("batch")) {
                producer.send(event, (place, error) -> {
                    if (error != null) failure.set(error);
                    else times.add(System.nanoTime() - sent);
                });
            } else {
                producer.send(event).get();
                times.add(System.nanoTime() - sent);
            }
        }
        producer.flush();
    }

    /** Letters at random, in the shape of JSON. */
    private static byte[][] values(int bytes) {
        Random random = new Random(7);
        byte[][] values = new byte[VALUES][];
        for (int i = 0; i < VALUES; i++) {
            StringBuilder text = new StringBuilder(String.format(Locale.ROOT, "{\"user\":\"user-%05d\",\"text\":\"", i));
            while (text.length() < bytes - 2) text.append((char) ('a' + random.nextInt(26)));
            values[i] = text.append("\"}").toString().getBytes(java.nio.charset.StandardCharsets.US_ASCII);
        }
        return values;
    }

    /** How many events were acknowledged, and how long they took, in microseconds. */
    private static final class Times {
        /** So many are kept, and none later: enough for the 99.9th percentile. */
        private static final int KEPT = 4 << 20;
        private final int[] micros = new int[KEPT];
        private long count;

        synchronized void add(long nanos) {
            if (count < KEPT) micros[(int) count] = (int) Math.min(nanos / 1000, Integer.MAX_VALUE);
            count++;
        }

        synchronized String report(double seconds) {
            int kept = (int) Math.min(count, KEPT);
            Arrays.sort(micros, 0, kept);
            return String.format(Locale.ROOT, "{\"events\":%d,\"seconds\":%.6f,\"p50_us\":%d,\"p99_us\":%d,\"p999_us\":%d}",
                count, seconds, at(kept, 0.5), at(kept, 0.99), at(kept, 0.999));
        }

        private int at(int kept, double share) {
            return kept == 0 ? 0 : micros[(int) Math.min(kept - 1L, (long) (kept * share))];
        }
    }
}
