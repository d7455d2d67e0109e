//! Compiled components as bytes, and the one unsafe call: running such bytes as machine code.
//!
//! An [`Artefact`] can't be made from just any bytes: it comes from a compiled component, or out of a
//! sealed file whose checksum also covers which component and which engine it was made for.

use sha2::{Digest, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, Result};

/// First bytes of a sealed file; the last of them is the version of its layout.
const MAGIC: [u8; 8] = *b"tmcwasm\x01";
/// Bytes of the checksum behind them.
const CHECKSUM_BYTES: usize = 32;

/// Machine code of one component for one engine.
pub(super) struct Artefact(Vec<u8>);

impl Artefact {
    /// What `component` was compiled to.
    pub(super) fn of(component: &Component) -> Result<Self> {
        component.serialize().map(Self)
    }

    /// The bytes of a file: magic, checksum, artefact. `identity` says what it was made of and for.
    pub(super) fn seal(&self, identity: &str) -> Vec<u8> {
        let mut file = Vec::with_capacity(MAGIC.len() + CHECKSUM_BYTES + self.0.len());
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&checksum(identity, &self.0));
        file.extend_from_slice(&self.0);
        file
    }

    /// The artefact in such a file; `None` when the file is damaged or was sealed for another identity.
    pub(super) fn unseal(file: &[u8], identity: &str) -> Option<Self> {
        let rest = file.strip_prefix(&MAGIC)?;
        let (sum, artefact) = rest.split_first_chunk::<CHECKSUM_BYTES>()?;
        (*sum == checksum(identity, artefact)).then(|| Self(artefact.to_vec()))
    }

    /// Makes it a component of `engine` again. The engine refuses what another version or configuration
    /// compiled.
    #[expect(
        unsafe_code,
        reason = "a precompiled component can only be loaded on the caller's word that it is one"
    )]
    pub(super) fn load(&self, engine: &Engine) -> Result<Component> {
        // SAFETY: `deserialize` asks for unmodified output of `Component::serialize`. These bytes are
        // that: straight from `serialize`, or from a file of this host's own directory whose checksum
        // proved that they are as they were sealed.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}

fn checksum(identity: &str, artefact: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = Sha256::new();
    sum.update((identity.len() as u64).to_le_bytes());
    sum.update(identity);
    sum.update(artefact);
    sum.finalize().into()
}
