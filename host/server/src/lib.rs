//! HTTP, configuration, telemetry and wiring: the only composition root.

