//! A shared library found by the loader's own rules, and its symbols.

#![allow(unsafe_code)] // dlopen and dlsym are the subject

use std::ffi::{CStr, CString, c_void};

#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{0} cannot be loaded: {1}")]
    Load(&'static str, String),
    #[error("{0} has no {1}")]
    Symbol(&'static str, &'static str),
}

#[derive(Debug)]
pub(crate) struct Library {
    name: &'static str,
    handle: *mut c_void,
}

impl Library {
    pub(crate) fn load(name: &'static str) -> Result<Self, LibraryError> {
        let text = CString::new(name).map_err(|_| LibraryError::Load(name, "bad name".to_owned()))?;
        // SAFETY: the name is a C string; the libraries asked for are made to be loaded by programs.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: after a failure dlerror answers NULL or a C string.
            let reason = unsafe {
                let reason = libc::dlerror();
                if reason.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(reason).to_string_lossy().into_owned()
                }
            };
            return Err(LibraryError::Load(name, reason));
        }
        Ok(Self { name, handle })
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is the C function pointer type of that symbol.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, LibraryError> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let missing = || LibraryError::Symbol(self.name, symbol);
        let text = CString::new(symbol).map_err(|_| missing())?;
        // SAFETY: the handle is open for the process's life.
        let address = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
        if address.is_null() {
            return Err(missing());
        }
        // SAFETY: the sizes agree, and the caller vouches for the type.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
    }
}
