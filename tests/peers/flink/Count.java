import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A count per key by Flink: lines of JSON from files, each parsed, an output for every event, which is thrown away;
 * a checkpoint every second, exactly once. Arguments: rocksdb|hashmap DIR EVENTS KEYS BYTES.
 *
 * <p>Says in lines of JSON how far it is: "filled" when the events lie ready, "half" and "done" when half of them and all
 * of them are counted. The first half is to warm up. In the end the counts have to add up ("checked").
 */
public final class Count {
    private static final int POLL_MS = 10;
    /** Events are told to the others in such steps. */
    private static final int STEP = 1000;
    private static final AtomicLong COUNTED = new AtomicLong(), SUM = new AtomicLong();

    private record Load(long events, int keys, int bytes) {}

    public static void main(String[] arguments) throws Exception {
        Path dir = Path.of(arguments[1]);
        Load load = new Load(Long.parseLong(arguments[2]), Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
        int tasks = Runtime.getRuntime().availableProcessors();
        Files.createDirectories(dir.resolve("input"));
        long expected = fill(dir.resolve("input"), load, tasks);
        say("filled", load.events);

        StreamExecutionEnvironment flink =
            StreamExecutionEnvironment.createLocalEnvironment(settings(arguments[0], dir, tasks));
        var lines = FileSource.forRecordStreamFormat(new TextLineInputFormat(),
            new org.apache.flink.core.fs.Path(dir.resolve("input").toUri())).build();
        flink.fromSource(lines, WatermarkStrategy.noWatermarks(), "events")
            .map(new Parse()).returns(Types.TUPLE(Types.STRING, Types.LONG))
            .keyBy(event -> event.f0, Types.STRING)
            .process(new Counting(), Types.TUPLE(Types.STRING, Types.LONG))
            .sinkTo(new DiscardingSink<>());
        var job = flink.executeAsync("count");
        var result = job.getJobExecutionResult();
        say("half", until(load.events / 2, result));
        result.get();
        say("done", COUNTED.get());
        if (COUNTED.get() != load.events || SUM.get() != expected)
            throw new IllegalStateException(load.events + " events: " + COUNTED + " are counted, to " + SUM + ", not " + expected);
        say("checked", COUNTED.get());
    }

    private static Configuration settings(String state, Path dir, int tasks) {
        Configuration settings = new Configuration();
        String[][] pairs = {
            {"parallelism.default", String.valueOf(tasks)},
            {"taskmanager.numberOfTaskSlots", String.valueOf(tasks)},
            {"rest.bind-address", "127.0.0.1"}, {"rest.address", "127.0.0.1"}, {"rest.bind-port", "0"},
            {"jobmanager.bind-host", "127.0.0.1"}, {"jobmanager.rpc.address", "127.0.0.1"},
            {"taskmanager.bind-host", "127.0.0.1"}, {"taskmanager.host", "127.0.0.1"},
            {"taskmanager.memory.managed.size", "512m"},
            {"io.tmp.dirs", dir.resolve("tmp").toString()},
            {"pipeline.object-reuse", "true"},
            {"state.backend.type", state},
            {"execution.checkpointing.incremental", "true"},
            {"execution.checkpointing.interval", "1 s"},
            {"execution.checkpointing.mode", "EXACTLY_ONCE"},
            {"execution.checkpointing.storage", "filesystem"},
            {"execution.checkpointing.dir", dir.resolve("checkpoints").toUri().toString()},
        };
        for (String[] pair : pairs) settings.setString(pair[0], pair[1]);
        return settings;
    }

    /** Writes a file for each task; gives what all counts that come out add up to. */
    private static long fill(Path input, Load load, int files) throws IOException {
        Random random = new Random(1);
        long[] counts = new long[load.keys];
        long sum = 0, n = 0;
        for (int file = 0; file < files; file++) {
            long end = load.events * (file + 1) / files;
            try (BufferedWriter out = Files.newBufferedWriter(input.resolve(file + ".ndjson"), StandardCharsets.US_ASCII)) {
                for (; n < end; n++) {
                    int key = random.nextInt(load.keys);
                    sum += ++counts[key];
                    StringBuilder line = new StringBuilder(load.bytes + 1);
                    line.append(String.format(Locale.ROOT, "{\"user\":\"user-%05d\",\"n\":%d,\"text\":\"", key, n));
                    while (line.length() < load.bytes - 2) line.append(Long.toHexString(random.nextLong()));
                    line.setLength(load.bytes - 2);
                    out.append(line.append("\"}\n"));
                }
            }
        }
        return sum;
    }

    /** Waits until so many events are counted, and gives how many are. */
    private static long until(long events, java.util.concurrent.CompletableFuture<?> job) throws InterruptedException {
        while (COUNTED.get() < events && !job.isDone()) Thread.sleep(POLL_MS);
        return COUNTED.get();
    }

    private static void say(String what, long events) {
        System.out.println("{\"" + what + "\":" + events + "}");
        System.out.flush();
    }

    /** Takes key and number out of a line. */
    private static final class Parse extends RichMapFunction<String, Tuple2<String, Long>> {
        private transient JsonFactory json;

        @Override
        public void open(OpenContext context) {
            json = new JsonFactory();
        }

        @Override
        public Tuple2<String, Long> map(String line) throws IOException {
            Tuple2<String, Long> event = new Tuple2<>("", 0L);
            try (JsonParser parser = json.createParser(line)) {
                for (parser.nextToken(); parser.nextToken() == JsonToken.FIELD_NAME;) {
                    String name = parser.currentName();
                    parser.nextToken();
                    switch (name) {
                        case "user" -> event.f0 = parser.getText();
                        case "n" -> event.f1 = parser.getLongValue();
                        default -> parser.skipChildren();
                    }
                }
            }
            return event;
        }
    }

    private static final class Counting extends KeyedProcessFunction<String, Tuple2<String, Long>, Tuple2<String, Long>> {
        private transient ValueState<Long> kept;
        private transient long counted, sum;

        @Override
        public void open(OpenContext context) {
            kept = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Tuple2<String, Long> event, Context context, Collector<Tuple2<String, Long>> out)
                throws IOException {
            Long before = kept.value();
            long count = before == null ? 1 : before + 1;
            kept.update(count);
            out.collect(new Tuple2<>(event.f0, count));
            sum += count;
            if (++counted == STEP) tell();
        }

        @Override
        public void close() {
            tell();
        }

        private void tell() {
            COUNTED.addAndGet(counted);
            SUM.addAndGet(sum);
            counted = sum = 0;
        }
    }
}
