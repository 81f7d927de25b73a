//! Columns of numbers from Python. A contiguous numpy array of the right type is borrowed; any other is copied and checked.

use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::fault::RidgepointError;

/// A column of `T`.
pub enum Column<'py, T: numpy::Element> {
    /// A borrowed numpy array.
    Borrowed(PyReadonlyArray1<'py, T>),
    /// A converted copy.
    Owned(Vec<T>),
}

impl<T: numpy::Element> Column<'_, T> {
    pub fn values(&self) -> &[T] {
        match self {
            // Only contiguous arrays are borrowed.
            Column::Borrowed(array) => array.as_slice().unwrap_or(&[]),
            Column::Owned(values) => values,
        }
    }
}

/// Reads token counts. A contiguous `uint32` array is borrowed.
///
/// # Errors
/// `TypeError` if the values are not integers, `RidgepointError` if one is negative or too large, or for several dimensions.
pub fn tokens<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Column<'py, u32>> {
    borrowed(given).map_or_else(|| Ok(Column::Owned(converted(name, given)?)), Ok)
}

/// Reads 64-bit integers, like [`tokens`].
///
/// # Errors
/// As [`tokens`].
pub fn times_ns<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Column<'py, u64>> {
    borrowed(given).map_or_else(|| Ok(Column::Owned(converted(name, given)?)), Ok)
}

/// Reads indices into other columns.
///
/// # Errors
/// As [`tokens`].
pub fn positions(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    converted(name, given)
}

/// Reads booleans as bytes. A contiguous `bool` array is borrowed.
///
/// # Errors
/// `TypeError` if the values are not booleans, `RidgepointError` for several dimensions.
pub fn flags<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Column<'py, u8>> {
    let array = as_array(name, given)?;
    let is_nothing = array.len() == 0 && !given.is_instance_of::<PyUntypedArray>();
    if array.dtype().kind() != b'b' && !is_nothing {
        return Err(PyTypeError::new_err(format!(
            "{name} must hold truth values (dtype bool), and its dtype is {}",
            array.dtype().str()?
        )));
    }
    let py = given.py();
    let whole = if array.is_c_contiguous() { array.into_any() } else { array.call_method0(intern!(py, "copy"))? };
    // Read as bytes: a byte of a numpy bool can have any value.
    let bytes = whole.call_method1(intern!(py, "view"), (numpy::dtype::<u8>(py),))?;
    Ok(borrowed(&bytes).unwrap_or(Column::Owned(Vec::new())))
}

fn borrowed<'py, T: numpy::Element>(given: &Bound<'py, PyAny>) -> Option<Column<'py, T>> {
    let array = given.cast_exact::<PyArray1<T>>().ok()?.try_readonly().ok()?;
    array.as_slice().is_ok().then_some(Column::Borrowed(array))
}

fn converted<T>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<T>>
where
    T: TryFrom<i64> + TryFrom<u64>,
{
    let array = as_array(name, given)?;
    if array.len() == 0 && !given.is_instance_of::<PyUntypedArray>() {
        // numpy gives an empty list the type float64.
        return Ok(Vec::new());
    }
    let plain = |dtype: &str| array.call_method1("astype", (dtype, "C"));
    match array.dtype().kind() {
        b'i' => checked(name, plain("int64")?.cast::<PyArray1<i64>>()?),
        b'u' => checked(name, plain("uint64")?.cast::<PyArray1<u64>>()?),
        _ => Err(PyTypeError::new_err(format!(
            "{name} must hold integers, best of dtype uint32, and its dtype is {}",
            array.dtype().str()?
        ))),
    }
}

fn checked<F, T>(name: &str, array: &Bound<'_, PyArray1<F>>) -> PyResult<Vec<T>>
where
    F: numpy::Element + Copy + std::fmt::Display,
    T: TryFrom<F>,
{
    let array = array.try_readonly()?;
    let numbers = array.as_array();
    let value = |(index, value): (usize, &F)| {
        T::try_from(*value).map_err(|_| {
            let most = most::<T>();
            RidgepointError::new_err(format!("{name}[{index}] = {value} must be from 0 to {most}"))
        })
    };
    numbers.iter().enumerate().map(value).collect()
}

fn most<T>() -> u64 {
    if size_of::<T>() == size_of::<u32>() { u64::from(u32::MAX) } else { u64::MAX }
}

/// Converts to a plain array. Refuses masked arrays, whose masked values would otherwise count.
fn as_array<'py>(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = match given.cast_exact::<PyUntypedArray>() {
        Ok(array) => array.clone(),
        Err(_) if given.hasattr("mask")? && given.is_instance_of::<PyUntypedArray>() => {
            return Err(PyTypeError::new_err(format!("{name} is a masked array: give its compressed() values")));
        }
        Err(_) => given.py().import("numpy")?.call_method1("asarray", (given,))?.cast_into::<PyUntypedArray>()?,
    };
    if array.ndim() == 1 {
        return Ok(array);
    }
    Err(RidgepointError::new_err(format!("{name} must have one dimension, and its shape is {:?}", array.shape())))
}
