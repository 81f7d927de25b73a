//! The list of kernel families that have tables. Whatever is done for each of them (reading, calibrating, checking, listing) walks
//! this list, so a new family is entered here and nowhere else.

use super::batched_gemm::BatchedGemmModel;
use super::collective_model::{AllReduceModel, ExchangeModel};
use super::gemm_model::GemmModel;
use super::kernel_model::{DecodeModel, MoeModel, PrefillModel};
use super::state_model::StateModel;
use crate::error::Result;

/// All families, in the order of reports.
pub type Families = (
    GemmModel,
    (BatchedGemmModel, (PrefillModel, (DecodeModel, (MoeModel, (AllReduceModel, (ExchangeModel, (StateModel, ()))))))),
);

/// Does something for the family `F`. Implement it for every `F` that has the traits that the work needs.
pub trait FamilyVisitor<F> {
    /// Does it.
    ///
    /// # Errors
    /// Those of the work; the walk ends at the first.
    fn visit(&mut self) -> Result<()>;
}

/// A list of families that `V` can visit: `()`, or a family and the rest of the list.
pub trait FamilyList<V> {
    /// Visits the families in order.
    ///
    /// # Errors
    /// The first of a visit.
    fn walk(visitor: &mut V) -> Result<()>;
}

impl<V> FamilyList<V> for () {
    fn walk(_: &mut V) -> Result<()> {
        Ok(())
    }
}

impl<V: FamilyVisitor<F>, F, Rest: FamilyList<V>> FamilyList<V> for (F, Rest) {
    fn walk(visitor: &mut V) -> Result<()> {
        <V as FamilyVisitor<F>>::visit(visitor)?;
        Rest::walk(visitor)
    }
}

/// Visits every family, in the order of reports.
///
/// # Errors
/// The first of a visit.
pub fn for_each_family<V>(visitor: &mut V) -> Result<()>
where
    Families: FamilyList<V>,
{
    Families::walk(visitor)
}
