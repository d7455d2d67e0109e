;; Does with each event what the first byte of its value says:
;;   1 e  emit it as it is          f  nothing                 s  skip         d  dead letter
;;   u    undecodable               t  trap                    l  loop for ever
;;   r    ask for another try       R  ask for another try the first time, then emit
;;   x    stop the function         2 C  count its key in slot 0 and emit it as it is
;;   c    count its key in slot 0 and emit the count as eight bytes under the key
;; Skips, dead letters, undecodable events and stops give the value as their reason.
(global $batch (mut i32) (i32.const 0))
(global $ans (mut i32) (i32.const 0))
(global $cmd (mut i32) (i32.const 0))
(global $commands (mut i32) (i32.const 0))
(global $in (mut i32) (i32.const 0))       ;; payload of the batch
(global $out (mut i32) (i32.const 0))      ;; payload of the answer
(global $counts (mut i32) (i32.const 0))   ;; where the counts start in the answer's payload
(global $free (mut i32) (i32.const 0))     ;; next free byte in the answer's payload
(global $last (mut i32) (i32.const 0))     ;; for each key: the last event that counts it, + 1

(func $head (param $i i32) (result i32)
  (i32.add (global.get $batch) (i32.add (i32.const 48) (i32.mul (local.get $i) (i32.const 32)))))

(func $op (param $i i32) (result i32)
  (i32.load8_u (i32.add (global.get $in) (i32.load offset=16 (call $head (local.get $i))))))

(func $counting (param $op i32) (result i32)
  (i32.or (i32.eq (local.get $op) (i32.const 50))
    (i32.or (i32.eq (local.get $op) (i32.const 67)) (i32.eq (local.get $op) (i32.const 99)))))

(func $key (param $i i32) (result i32)
  (i32.load (i32.add
    (i32.add (global.get $batch) (i32.load offset=24 (global.get $batch)))
    (i32.mul (local.get $i) (i32.const 4)))))

(func $count_at (param $key i32) (result i32)
  (i32.add (global.get $counts) (i32.mul (local.get $key) (i32.const 8))))

(func $last_at (param $key i32) (result i32)
  (i32.add (global.get $last) (i32.mul (local.get $key) (i32.const 4))))

(func $command (param $op i32) (param $flags i32) (param $event i32) (param $at i32) (param $key i32) (param $value i32) (param $headers i32)
  (i32.store8 (global.get $cmd) (local.get $op))
  (i32.store8 offset=1 (global.get $cmd) (local.get $flags))
  (i32.store offset=4 (global.get $cmd) (local.get $event))
  (i32.store offset=16 (global.get $cmd) (local.get $at))
  (i32.store offset=20 (global.get $cmd) (local.get $key))
  (i32.store offset=24 (global.get $cmd) (local.get $value))
  (i32.store offset=28 (global.get $cmd) (local.get $headers))
  (global.set $cmd (i32.add (global.get $cmd) (i32.const 32)))
  (global.set $commands (i32.add (global.get $commands) (i32.const 1))))

(func $emit (param $i i32)
  (local $h i32)
  (local.set $h (call $head (local.get $i)))
  (call $command (i32.const 1) (i32.load offset=28 (local.get $h)) (local.get $i)
    (i32.load offset=8 (local.get $h)) (i32.load offset=12 (local.get $h))
    (i32.load offset=20 (local.get $h)) (i32.load offset=24 (local.get $h))))

(func $reason (param $op i32) (param $i i32)
  (local $h i32)
  (local.set $h (call $head (local.get $i)))
  (call $command (local.get $op) (i32.const 0) (local.get $i)
    (i32.load offset=16 (local.get $h)) (i32.const 0) (i32.load offset=20 (local.get $h)) (i32.const 0)))

(func $outcome (param $i i32) (param $what i32)
  (i32.store8 offset=32 (i32.add (global.get $ans) (local.get $i)) (local.get $what)))

(func $count (param $i i32) (param $op i32)
  (local $h i32) (local $key i32) (local $at i32) (local $key_len i32)
  (local.set $h (call $head (local.get $i)))
  (local.set $key (call $key (local.get $i)))
  (local.set $at (i32.add (global.get $out) (call $count_at (local.get $key))))
  (i64.store (local.get $at) (i64.add (i64.load (local.get $at)) (i64.const 1)))
  (if (i32.eq (local.get $op) (i32.const 99))
    (then
      (local.set $key_len (i32.load offset=12 (local.get $h)))
      (memory.copy
        (i32.add (global.get $out) (global.get $free))
        (i32.add (global.get $in) (i32.load offset=8 (local.get $h)))
        (local.get $key_len))
      (i64.store
        (i32.add (global.get $out) (i32.add (global.get $free) (local.get $key_len)))
        (i64.load (local.get $at)))
      (call $command (i32.const 1) (i32.const 1) (local.get $i) (global.get $free)
        (local.get $key_len) (i32.const 8) (i32.const 0))
      (global.set $free (i32.add (global.get $free) (i32.add (local.get $key_len) (i32.const 8)))))
    (else (call $emit (local.get $i))))
  (if (i32.eq (i32.load (call $last_at (local.get $key))) (i32.add (local.get $i) (i32.const 1)))
    (then (call $command (i32.const 2) (i32.const 0) (local.get $i)
      (call $count_at (local.get $key)) (i32.const 0) (i32.const 8) (i32.const 0)))))

;; What is stored for each key, as the counts to start from.
(func $load_counts (param $keys i32)
  (local $k i32) (local $cell i32)
  (block $done
    (loop $next
      (br_if $done (i32.eq (local.get $k) (local.get $keys)))
      (local.set $cell (i32.add
        (i32.add (global.get $batch) (i32.load offset=28 (global.get $batch)))
        (i32.mul (local.get $k) (i32.const 8))))
      (if (i32.ne (i32.load offset=4 (local.get $cell)) (i32.const -1))
        (then (i64.store
          (i32.add (global.get $out) (call $count_at (local.get $k)))
          (i64.load (i32.add (global.get $in) (i32.load (local.get $cell)))))))
      (local.set $k (i32.add (local.get $k) (i32.const 1)))
      (br $next))))

(func (export "on-batch")
  (param i32 i32) (param $attempt i32) (param i64 i64) (param $b i32) (param $len i32) (result i32)
  (local $events i32) (local $keys i32) (local $payload i32) (local $p i32) (local $i i32)
  (local $op i32) (local $stop i32) (local $size i32)
  (global.set $batch (local.get $b))
  (local.set $events (i32.load offset=4 (local.get $b)))
  (local.set $keys (i32.load offset=8 (local.get $b)))
  (local.set $payload (i32.load offset=36 (local.get $b)))
  (global.set $in (i32.add (local.get $b) (i32.load offset=32 (local.get $b))))
  (global.set $last (call $alloc (i32.const 0) (i32.const 0) (i32.const 4)
    (i32.mul (local.get $keys) (i32.const 4))))
  (memory.fill (global.get $last) (i32.const 0) (i32.mul (local.get $keys) (i32.const 4)))
  ;; Where the batch stops, and who counts a key last.
  (block $stops
    (loop $next
      (br_if $stops (i32.eq (local.get $p) (local.get $events)))
      (local.set $op (call $op (local.get $p)))
      (if (i32.eq (local.get $op) (i32.const 116)) (then (unreachable)))
      (if (i32.eq (local.get $op) (i32.const 108)) (then (loop $ever (br $ever))))
      (if (i32.eq (local.get $op) (i32.const 114)) (then (local.set $stop (i32.const 1)) (br $stops)))
      (if (i32.and (i32.eq (local.get $op) (i32.const 82)) (i32.eqz (local.get $attempt)))
        (then (local.set $stop (i32.const 1)) (br $stops)))
      (if (i32.eq (local.get $op) (i32.const 120)) (then (local.set $stop (i32.const 2)) (br $stops)))
      (if (call $counting (local.get $op))
        (then (i32.store (call $last_at (call $key (local.get $p))) (i32.add (local.get $p) (i32.const 1)))))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (br $next)))
  (global.set $counts (i32.and (i32.add (local.get $payload) (i32.const 7)) (i32.const -8)))
  (global.set $free (call $count_at (local.get $keys)))
  (local.set $size (i32.add (global.get $free)
    (i32.add (local.get $payload) (i32.mul (local.get $events) (i32.const 8)))))
  (global.set $ans (call $answer (local.get $p)
    (i32.add (i32.const 1) (i32.mul (local.get $events) (i32.const 2))) (local.get $size)))
  (global.set $cmd (i32.add (global.get $ans) (i32.load offset=16 (global.get $ans))))
  (global.set $out (i32.add (global.get $ans) (i32.load offset=20 (global.get $ans))))
  (global.set $commands (i32.const 0))
  (memory.copy (global.get $out) (global.get $in) (local.get $payload))
  (call $load_counts (local.get $keys))
  (block $done
    (loop $next
      (br_if $done (i32.eq (local.get $i) (local.get $p)))
      (local.set $op (call $op (local.get $i)))
      (block $handled
        (br_if $handled (i32.eq (local.get $op) (i32.const 102)))
        (if (call $counting (local.get $op))
          (then
            (call $outcome (local.get $i) (i32.const 1))
            (call $count (local.get $i) (local.get $op))
            (br $handled)))
        (if (i32.eq (local.get $op) (i32.const 115))
          (then (call $outcome (local.get $i) (i32.const 2)) (call $reason (i32.const 16) (local.get $i)) (br $handled)))
        (if (i32.eq (local.get $op) (i32.const 100))
          (then (call $outcome (local.get $i) (i32.const 3)) (call $reason (i32.const 16) (local.get $i)) (br $handled)))
        (if (i32.eq (local.get $op) (i32.const 117))
          (then (call $outcome (local.get $i) (i32.const 4)) (call $reason (i32.const 16) (local.get $i)) (br $handled)))
        (call $outcome (local.get $i) (i32.const 1))
        (call $emit (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
  (i32.store8 offset=1 (global.get $ans) (local.get $stop))
  (if (local.get $stop) (then (call $reason (i32.const 17) (local.get $p))))
  (i32.store offset=8 (global.get $ans) (global.get $commands))
  (call $ok
    (global.get $ans)
    (i32.add (i32.load offset=20 (global.get $ans)) (local.get $size))))
