//! Modules: PTX text, of which only the entry names are read. Which of them can run, [`crate::kernels`] says.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::driver;
use crate::entry::put;
use crate::native::fresh_id;

#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: HashMap<usize, Module>,
    functions: HashMap<usize, Function>,
}

#[derive(Debug)]
struct Module {
    context: usize,
    entries: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    module: usize,
}

impl Modules {
    pub(crate) fn function(&self, id: usize) -> Result<Function, Code> {
        self.functions.get(&id).cloned().ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn forget_context(&mut self, context: usize) {
        self.modules.retain(|_, module| module.context != context);
        let modules = &self.modules;
        self.functions.retain(|_, function| modules.contains_key(&function.module));
    }
}

/// The names after `.entry`.
fn entries(ptx: &str) -> Vec<String> {
    let name = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
        text[..end].to_owned()
    };
    ptx.split(".entry").skip(1).map(name).filter(|name| !name.is_empty()).collect()
}

fn load(module: *mut usize, image: *const c_void) -> Outcome {
    let driver = driver()?;
    let here = current(driver)?;
    if module.is_null() || image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: PTX is a C string; a binary image is looked at only up to its first zero byte.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
    if !text.contains(".version") {
        return Err(Code::INVALID_IMAGE);
    }
    let id = usize::try_from(0x6d00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
    driver.modules().modules.insert(id, Module { context: here.id, entries: entries(&text) });
    // SAFETY: checked for NULL above; the caller vouches for the rest.
    unsafe { put(module, id) }
}

driver_api! {
    ["cuModuleLoadData" 2000] fn cuModuleLoadData(module: *mut usize, image: *const c_void) { load(module, image) }
    ["cuModuleLoadDataEx" 2010] fn cuModuleLoadDataEx(
        module: *mut usize, image: *const c_void, _count: u32, _options: *mut i32, _values: *mut *mut c_void,
    ) {
        load(module, image)
    }
    ["cuModuleLoad" 2000] fn cuModuleLoad(module: *mut usize, path: *const c_char) {
        driver()?;
        if path.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let path = CStr::from_ptr(path).to_string_lossy().into_owned();
        let mut text = std::fs::read(path).map_err(|_| Code::FILE_NOT_FOUND)?;
        text.push(0);
        load(module, text.as_ptr().cast())
    }
    ["cuModuleLoadFatBinary" 2000] fn cuModuleLoadFatBinary(_module: *mut usize, _image: *const c_void) {
        current(driver()?)?;
        Err(Code::INVALID_IMAGE)
    }
    ["cuModuleUnload" 2000] fn cuModuleUnload(module: usize) {
        let driver = driver()?;
        let mut modules = driver.modules();
        modules.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        modules.functions.retain(|_, function| function.module != module);
        Ok(())
    }
    ["cuModuleGetLoadingMode" 11070] fn cuModuleGetLoadingMode(mode: *mut i32) {
        driver()?;
        put(mode, 2)
    }
    ["cuModuleGetFunction" 2000] fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let driver = driver()?;
        if function.is_null() || name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
        let mut modules = driver.modules();
        let known = &modules.modules.get(&module).ok_or(Code::INVALID_HANDLE)?.entries;
        if !known.contains(&name) {
            return Err(Code::NOT_FOUND);
        }
        let id = usize::try_from(0x6f00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
        modules.functions.insert(id, Function { name, module });
        put(function, id)
    }
    ["cuModuleGetGlobal" 3020] fn cuModuleGetGlobal_v2(
        _address: *mut u64, _bytes: *mut usize, module: usize, _name: *const c_char,
    ) {
        let driver = driver()?;
        driver.modules().modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        Err(Code::NOT_FOUND)
    }
    ["cuFuncGetAttribute" 2020] fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: usize) {
        driver()?.modules().function(function)?;
        put(value, match attribute { 0 => 1024, 4 => 32, 5 | 6 => 90, _ => 0 })
    }
    ["cuFuncSetAttribute" 9000] fn cuFuncSetAttribute(function: usize, _attribute: i32, _value: i32) {
        driver()?.modules().function(function).map(|_| ())
    }
    ["cuFuncSetCacheConfig" 3000] fn cuFuncSetCacheConfig(function: usize, _config: i32) {
        driver()?.modules().function(function).map(|_| ())
    }
    ["cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050] fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: usize, block_size: i32, _shared: usize,
    ) {
        driver()?.modules().function(function)?;
        if block_size < 1 {
            return Err(Code::INVALID_VALUE);
        }
        put(blocks, (2048 / block_size).clamp(1, 24))
    }
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn entry_names_are_read_from_ptx() {
        let text = ".version 7.0\n.visible .entry one(\n.param .u64 a)\n{ ret; }\n.entry two$_3 ( ) {}";
        assert_eq!(entries(text), ["one", "two$_3"]);
    }
}
