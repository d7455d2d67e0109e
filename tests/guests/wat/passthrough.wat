;; Emits every event as it is to output 0. Relies on key, value and headers lying one behind the other,
;; as the host packs them.
(func (export "on-batch") (param i32 i32 i32 i64 i64) (param $batch i32) (param $len i32) (result i32)
  (local $events i32) (local $payload i32) (local $answer i32) (local $head i32) (local $command i32) (local $i i32)
  (local.set $events (i32.load offset=4 (local.get $batch)))
  (local.set $payload (i32.load offset=36 (local.get $batch)))
  (local.set $answer (call $answer (local.get $events) (local.get $events) (local.get $payload)))
  (memory.copy
    (i32.add (local.get $answer) (call $payload_at (local.get $events) (local.get $events)))
    (i32.add (local.get $batch) (i32.load offset=32 (local.get $batch)))
    (local.get $payload))
  (local.set $head (i32.add (local.get $batch) (i32.const 48)))
  (local.set $command (i32.add (local.get $answer) (call $commands_at (local.get $events))))
  (block $done
    (loop $next
      (br_if $done (i32.eq (local.get $i) (local.get $events)))
      (i32.store8 offset=32 (i32.add (local.get $answer) (local.get $i)) (i32.const 1))
      (i32.store8 (local.get $command) (i32.const 1))
      (i32.store8 offset=1 (local.get $command) (i32.load offset=28 (local.get $head)))
      (i32.store offset=4 (local.get $command) (local.get $i))
      (i32.store offset=16 (local.get $command) (i32.load offset=8 (local.get $head)))
      (i32.store offset=20 (local.get $command) (i32.load offset=12 (local.get $head)))
      (i32.store offset=24 (local.get $command) (i32.load offset=20 (local.get $head)))
      (i32.store offset=28 (local.get $command) (i32.load offset=24 (local.get $head)))
      (local.set $head (i32.add (local.get $head) (i32.const 32)))
      (local.set $command (i32.add (local.get $command) (i32.const 32)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
  (call $ok
    (local.get $answer)
    (i32.add (call $payload_at (local.get $events) (local.get $events)) (local.get $payload))))
