;; What every core module here starts with: one memory, an allocator that starts over after each call,
;; and an answer of a given length to write into. The return area lies at 16.
(memory (export "memory") 2)
(global $top (mut i32) (i32.const 1024))

(func $alloc (export "cabi_realloc")
  (param $old i32) (param $old_len i32) (param $align i32) (param $len i32) (result i32)
  (local $at i32)
  (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
  (global.set $top (i32.add (local.get $at) (local.get $len)))
  (block $fits
    (loop $grow
      (br_if $fits (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
      (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
      (br $grow)))
  (local.get $at))

(func (export "cabi_post_on-batch") (param i32)
  (global.set $top (i32.const 1024)))

;; The result `ok(list)`.
(func $ok (param $at i32) (param $len i32) (result i32)
  (i32.store8 (i32.const 16) (i32.const 0))
  (i32.store (i32.const 20) (local.get $at))
  (i32.store (i32.const 24) (local.get $len))
  (i32.const 16))

;; A zeroed answer to `$events` events with `$commands` commands and `$payload` payload bytes: its header
;; is complete. The commands follow at $commands_at, the payload at $payload_at.
(func $commands_at (param $events i32) (result i32)
  (i32.add (i32.const 32) (i32.and (i32.add (local.get $events) (i32.const 7)) (i32.const -8))))

(func $payload_at (param $events i32) (param $commands i32) (result i32)
  (i32.add (call $commands_at (local.get $events)) (i32.mul (local.get $commands) (i32.const 32))))

(func $answer (param $events i32) (param $commands i32) (param $payload i32) (result i32)
  (local $at i32)
  (local $len i32)
  (local.set $len (i32.add
    (call $payload_at (local.get $events) (local.get $commands)) (local.get $payload)))
  (local.set $at (call $alloc (i32.const 0) (i32.const 0) (i32.const 8) (local.get $len)))
  (memory.fill (local.get $at) (i32.const 0) (local.get $len))
  (i32.store8 (local.get $at) (i32.const 1))
  (i32.store offset=4 (local.get $at) (local.get $events))
  (i32.store offset=8 (local.get $at) (local.get $commands))
  (i32.store offset=12 (local.get $at) (i32.const 32))
  (i32.store offset=16 (local.get $at) (call $commands_at (local.get $events)))
  (i32.store offset=20 (local.get $at) (call $payload_at (local.get $events) (local.get $commands)))
  (i32.store offset=24 (local.get $at) (local.get $payload))
  (local.get $at))
