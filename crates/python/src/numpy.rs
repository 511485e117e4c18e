//! numpy's memory handler: arrays lie in an arena.
//!
//! numpy (1.22 or newer) asks the handler of the current context for the memory of each array, and each array keeps the
//! handler that gave it its memory. Small arrays come from malloc: they would share pages, and most are short-lived.
//!
//! Unsafe is needed here because numpy's interface is a table of addresses.

use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use vswap_arena::Heap;

/// Smaller arrays come from malloc.
const LEAST_BYTES: usize = 16 << 10;
/// Arrays are aligned for every type, and for the processor's vectors, so that numpy need not copy them.
const ALIGN_BYTES: usize = 64;
/// Where the function that sets a handler lies in numpy's table; the same in all versions from 1.22 on.
const SET_HANDLER: usize = 304;
/// The oldest interface that has it.
const INTERFACE_LEAST: u32 = 0xf;
/// Where the function lies that says which interface numpy has.
const INTERFACE_VERSION: usize = 211;
/// The name by which numpy knows a handler.
const HANDLER: &CStr = c"mem_handler";

/// `PyDataMem_Handler` of numpy.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// `PyDataMemAllocator` of numpy.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// What numpy holds: the handler, which it finds at the beginning, and what that allocates from.
#[repr(C)]
struct Held {
    handler: Handler,
    heap: Heap,
}

/// # Safety
/// `context` is that of a handler which numpy holds.
unsafe fn heap<'a>(context: *mut c_void) -> &'a Heap {
    // SAFETY: the context is the heap of a `Held`, which lives as long as numpy holds the handler.
    unsafe { &*context.cast::<Heap>() }
}

/// Allocates in the arena. Null if there is no room, which numpy raises as a MemoryError.
fn allocate(heap: &Heap, bytes: usize, zeroed: bool) -> *mut c_void {
    let Ok(layout) = Layout::from_size_align(bytes, ALIGN_BYTES) else {
        return ptr::null_mut();
    };
    let place = if zeroed {
        heap.allocate_zeroed(layout)
    } else {
        heap.allocate(layout)
    };
    place.map_or(ptr::null_mut(), |place| place.as_ptr().cast())
}

unsafe extern "C" fn malloc(context: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes < LEAST_BYTES {
        // SAFETY: malloc takes any size.
        return unsafe { libc::malloc(bytes.max(1)) };
    }
    // SAFETY: numpy passes the context of the handler.
    allocate(unsafe { heap(context) }, bytes, false)
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else {
        return ptr::null_mut();
    };
    if all < LEAST_BYTES {
        // SAFETY: calloc takes any size.
        return unsafe { libc::calloc(1, all.max(1)) };
    }
    // SAFETY: as in `malloc`.
    allocate(unsafe { heap(context) }, all, true)
}

unsafe extern "C" fn realloc(
    context: *mut c_void,
    memory: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let held = unsafe { heap(context) };
    let is_small = bytes < LEAST_BYTES;
    let has = (!memory.is_null()).then(|| held.has(memory.addr()));
    // SAFETY: numpy passes memory that this handler gave it, and does not use it any more if this succeeds.
    unsafe {
        match has {
            None => malloc(context, bytes),
            Some(false) if is_small => libc::realloc(memory, bytes.max(1)),
            Some(true) if !is_small => held
                .reallocate(memory.addr(), bytes)
                .map_or(ptr::null_mut(), |place| place.as_ptr().cast()),
            Some(in_arena) => {
                let old_bytes = if in_arena {
                    held.usable_bytes(memory.addr()).unwrap_or(0)
                } else {
                    libc::malloc_usable_size(memory)
                };
                let moved = malloc(context, bytes);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(memory, old_bytes.min(bytes));
                    free(context, memory, old_bytes);
                }
                moved
            }
        }
    }
}

unsafe extern "C" fn free(context: *mut c_void, memory: *mut c_void, _bytes: usize) {
    if memory.is_null() {
        return;
    }
    // SAFETY: as in `malloc`.
    let held = unsafe { heap(context) };
    // SAFETY: numpy gives back what this handler gave it. In the child of a fork the arena's stays with the parent: the
    // call is refused, and nothing is to be done.
    unsafe {
        if held.has(memory.addr()) {
            let _ = held.free(memory.addr());
        } else {
            libc::free(memory);
        }
    }
}

/// numpy lets go of a handler: no array has memory of it any more.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule was made by `capsule` with a `Held` of its own, and is destroyed once.
    unsafe {
        let held = ffi::PyCapsule_GetPointer(capsule, HANDLER.as_ptr()).cast::<Held>();
        if !held.is_null() {
            drop(Box::from_raw(held));
        }
    }
}

/// A handler that allocates from this heap, as numpy takes it.
fn capsule(py: Python<'_>, heap: Heap) -> PyResult<Py<PyAny>> {
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(c"vswap_arena".to_bytes()) {
        *to = from.cast_signed();
    }
    let allocator = Allocator {
        context: ptr::null_mut(),
        malloc,
        calloc,
        realloc,
        free,
    };
    let held = Box::into_raw(Box::new(Held {
        handler: Handler {
            name,
            version: 1,
            allocator,
        },
        heap,
    }));
    // SAFETY: the box is this call's alone. numpy finds the handler where the box begins, and the heap by its context.
    unsafe {
        (*held).handler.allocator.context = (&raw mut (*held).heap).cast();
        let capsule = ffi::PyCapsule_New(held.cast(), HANDLER.as_ptr(), Some(destroy));
        Bound::from_owned_ptr_or_err(py, capsule)
            .map(Bound::unbind)
            .inspect_err(|_| drop(Box::from_raw(held)))
    }
}

/// One of the functions that numpy gives to others.
///
/// # Safety
/// `F` is the type of the function at that place.
unsafe fn function<F: Copy>(py: Python<'_>, at: usize) -> PyResult<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    let module = py
        .import("numpy._core._multiarray_umath")
        .or_else(|_| py.import("numpy.core._multiarray_umath"))
        .map_err(|_| PyImportError::new_err("there is no numpy of 1.22 or newer: install it"))?;
    let table = module.getattr("_ARRAY_API")?;
    // SAFETY: numpy's capsule has no name, and holds the address of a table of addresses that lives as long as numpy.
    unsafe {
        let table = ffi::PyCapsule_GetPointer(table.as_ptr(), ptr::null()).cast::<*const c_void>();
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        Ok(table.add(at).cast::<F>().read())
    }
}

/// Sets the handler of the current context, and returns the one before.
fn set(py: Python<'_>, handler: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    type Version = unsafe extern "C" fn() -> u32;
    type Set = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
    // SAFETY: the places and types are those of numpy's headers. The first is there in every version.
    unsafe {
        let version = function::<Version>(py, INTERFACE_VERSION)?;
        if version() < INTERFACE_LEAST {
            return Err(PyImportError::new_err(
                "numpy is older than 1.22 and has no memory handlers: install a newer one",
            ));
        }
        let set = function::<Set>(py, SET_HANDLER)?;
        Bound::from_owned_ptr_or_err(py, set(handler.as_ptr())).map(Bound::unbind)
    }
}

/// Has arrays lie in an arena that are made between `__enter__` and `__exit__`, by the same thread or task.
#[pyclass(frozen, module = "vswap_arena")]
#[derive(Debug)]
pub struct NumpyArrays {
    heap: Heap,
    /// The handler before, while this one is set.
    earlier: Mutex<Option<Py<PyAny>>>,
}

impl NumpyArrays {
    pub fn new(heap: Heap) -> NumpyArrays {
        NumpyArrays {
            heap,
            earlier: Mutex::new(None),
        }
    }

    /// Has all arrays from now on lie there.
    pub fn set(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let handler = capsule(py, self.heap.clone())?;
        set(py, handler.bind(py))
    }
}

#[pymethods]
impl NumpyArrays {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if earlier.is_some() {
            return Err(PyRuntimeError::new_err(
                "this is in use: call numpy() once for each `with`",
            ));
        }
        *earlier = Some(self.set(py)?);
        Ok(())
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Py<PyAny>,
        _value: Py<PyAny>,
        _trace: Py<PyAny>,
    ) -> PyResult<()> {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handler) = earlier.take() {
            set(py, handler.bind(py))?;
        }
        Ok(())
    }
}
