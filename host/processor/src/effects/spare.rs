//! Memory for what runs come to, used again.

use tidemill_types::{PackedRows, ROW_HEAD_BYTES};

/// Memory of effects that were laid out, for the next ones of the task.
#[derive(Default)]
pub(crate) struct Spare {
    pub(super) outputs: Vec<(PackedRows, Vec<u32>)>,
    pub(super) sizes: Vec<u64>,
    pub(super) owners: Vec<usize>,
}

/// More than this isn't kept from one batch to the next.
const SPARE_BYTES: usize = 256 << 10;

impl Spare {
    /// What effects have no use for any more.
    pub(crate) fn of(
        outputs: Vec<(PackedRows, Vec<u32>)>,
        sizes: Vec<u64>,
        owners: Vec<usize>,
    ) -> Self {
        let rows = |(rows, _): &(PackedRows, _)| {
            rows.payload.capacity() + rows.heads.capacity() * ROW_HEAD_BYTES
        };
        if outputs.iter().map(rows).sum::<usize>() > SPARE_BYTES {
            return Self::default();
        }
        let mut spare = Self {
            outputs,
            sizes,
            owners,
        };
        for (rows, partitions) in &mut spare.outputs {
            rows.clear();
            partitions.clear();
        }
        spare.sizes.clear();
        spare.owners.clear();
        spare
    }
}
