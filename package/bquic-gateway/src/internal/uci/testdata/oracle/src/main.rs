// SPDX-License-Identifier: Apache-2.0

//! Reads UCI files with libuci and prints what it made of them:
//!     uci-oracle DIR < NAMES
//! One line of JSON per name: null where libuci rejects the file, else its
//! sections. Bytes beyond ASCII are printed as the characters U+0080 to U+00FF.

use libuci_sys::*;
use std::ffi::{CStr, CString};
use std::io::BufRead;
use std::os::raw::c_char;
use std::ptr;

fn main() {
    let dir = std::env::args().nth(1).expect("usage: uci-oracle DIR < NAMES");
    for name in std::io::stdin().lock().lines() {
        println!("{}", unsafe { load(&dir, &name.unwrap()) });
    }
}

unsafe fn load(dir: &str, name: &str) -> String {
    let (dir, name) = (CString::new(dir).unwrap(), CString::new(name).unwrap());
    let none = CString::new("/nonexistent").unwrap(); // no uncommitted changes
    let ctx = uci_alloc_context();
    uci_set_confdir(ctx, dir.as_ptr());
    uci_set_savedir(ctx, none.as_ptr());
    let mut package = ptr::null_mut();
    let out = if uci_load(ctx, name.as_ptr(), &mut package) == 0 {
        array(&(*package).sections, |e| section(e as *mut uci_section))
    } else {
        "null".to_string()
    };
    uci_free_context(ctx);
    out
}

unsafe fn section(s: *mut uci_section) -> String {
    let name = if (*s).anonymous { ptr::null() } else { (*s).e.name };
    format!(
        "{{\"type\":{},\"name\":{},\"options\":{}}}",
        string((*s).type_),
        string(name),
        array(&(*s).options, |e| option(e as *mut uci_option))
    )
}

unsafe fn option(o: *mut uci_option) -> String {
    let list = (*o).type_ != uci_option_type_UCI_TYPE_STRING;
    let values = if list {
        array(&(*o).v.list, |e| string((*e).name))
    } else {
        format!("[{}]", string((*o).v.string))
    };
    format!("{{\"name\":{},\"list\":{},\"values\":{}}}", string((*o).e.name), list, values)
}

/// Every element begins with its list head.
unsafe fn array(head: *const uci_list, show: impl Fn(*mut uci_element) -> String) -> String {
    let mut items = Vec::new();
    let mut e = (*head).next;
    while e as *const uci_list != head {
        items.push(show(e as *mut uci_element));
        e = (*e).next;
    }
    format!("[{}]", items.join(","))
}

unsafe fn string(s: *const c_char) -> String {
    let bytes = if s.is_null() { b"" } else { CStr::from_ptr(s).to_bytes() };
    let mut out = String::from("\"");
    for &b in bytes {
        match b {
            b' ' | b'!' | b'#'..=b'[' | b']'..=b'~' => out.push(b as char),
            _ => out.push_str(&format!("\\u{:04x}", b)),
        }
    }
    out.push('"');
    out
}
