//! A pickle interpreter that can only build plain data: nothing is imported, nothing is called.
//!
//! It understands what `torch.save` writes for tensors, numbers, text and containers of them. A global is only a name;
//! the few that may be "called" (rebuilding a tensor, making an `OrderedDict`) are functions of [`Builder`]. Values live
//! in an arena, so that a memo may share them; what is shared a thousandfold or contains itself is refused when the
//! result is taken out, where depth is limited. One byte of a pickle makes a value many times as large, so every value
//! is paid for from the [`Budget`] of the file before it is made.

use crate::{Budget, Error, Result};
use std::collections::HashMap;

/// A value under construction: an index into the arena.
pub(super) type Id = usize;

/// A value in the arena.
#[derive(Clone, Debug)]
pub(super) enum Node<T> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(String),
    Leaf(T),
}

/// What resolves globals and persistent ids.
pub(super) trait Builder {
    /// What it builds.
    type Leaf: Clone;
    /// Calls a global with arguments.
    fn call(&mut self, arena: &Arena<Self::Leaf>, global: &str, args: &[Id]) -> Result<Node<Self::Leaf>, String>;
    /// Finds a persistent object.
    fn persistent(&mut self, arena: &Arena<Self::Leaf>, id: Id) -> Result<Node<Self::Leaf>, String>;
    /// Whether a global of this name is known at all.
    fn knows(&self, global: &str) -> bool;
}

/// All values of one pickle.
pub(super) struct Arena<T>(Vec<Node<T>>);

impl<T> Arena<T> {
    pub(super) fn get(&self, id: Id) -> &Node<T> {
        &self.0[id]
    }

    pub(super) fn int(&self, id: Id) -> Result<i64, String> {
        match self.get(id) {
            Node::Int(v) => Ok(*v),
            _ => Err("expected an integer".into()),
        }
    }

    pub(super) fn str(&self, id: Id) -> Result<&str, String> {
        match self.get(id) {
            Node::Str(s) => Ok(s),
            _ => Err("expected a string".into()),
        }
    }

    pub(super) fn items(&self, id: Id) -> Result<&[Id], String> {
        match self.get(id) {
            Node::Tuple(v) | Node::List(v) => Ok(v),
            _ => Err("expected a tuple".into()),
        }
    }

    /// A tuple of sizes.
    pub(super) fn sizes(&self, id: Id) -> Result<Vec<usize>, String> {
        self.items(id)?
            .iter()
            .map(|&i| usize::try_from(self.int(i)?).map_err(|_| "a negative size or stride".to_string()))
            .collect()
    }
}

struct Machine<'a, B: Builder> {
    bytes: &'a [u8],
    at: usize,
    arena: Arena<B::Leaf>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    builder: &'a mut B,
    budget: &'a Budget,
}

/// What an id in a list costs; lists grow by doubling.
const ID: u64 = 2 * size_of::<Id>() as u64;
/// What an entry of the memo costs, in a table that is at least a quarter full.
const MEMO: u64 = 96;

/// Runs a pickle; gives its values and which of them is the result.
pub(super) fn run<B: Builder>(bytes: &[u8], builder: &mut B, budget: &Budget) -> Result<(Arena<B::Leaf>, Id)> {
    let mut m = Machine {
        bytes,
        at: 0,
        arena: Arena(Vec::new()),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        builder,
        budget,
    };
    loop {
        let start = m.at;
        match m.step() {
            Ok(None) => {}
            Ok(Some(result)) => return Ok((m.arena, result)),
            Err(reason) => return Err(Error::Pickle { at: start, reason }),
        }
    }
}

impl<'a, B: Builder> Machine<'a, B> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let part = self.at.checked_add(n).and_then(|end| self.bytes.get(self.at..end));
        let part = part.ok_or("the pickle is truncated")?;
        self.at += n;
        Ok(part)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many bytes as asked for"))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&b| b == b'\n').ok_or("the pickle is truncated")?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| "expected UTF-8 text".into())
    }

    fn text(&mut self, length: u64) -> Result<(), String> {
        let n = usize::try_from(length).map_err(|_| "the pickle is truncated")?;
        let text = std::str::from_utf8(self.take(n)?).map_err(|_| "expected UTF-8 text")?;
        self.push(Node::Str(text.to_string()))
    }

    fn pay(&self, bytes: u64) -> Result<(), String> {
        self.budget.take(bytes).map_err(|_| "the values take more memory than the file justifies".into())
    }

    fn push(&mut self, node: Node<B::Leaf>) -> Result<(), String> {
        let content = match &node {
            Node::Str(text) | Node::Global(text) => text.len() as u64,
            Node::Tuple(ids) | Node::List(ids) => ids.len() as u64 * ID,
            _ => 0,
        };
        self.pay(2 * size_of::<Node<B::Leaf>>() as u64 + ID + content)?;
        self.stack.push(self.arena.0.len());
        self.arena.0.push(node);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, String> {
        if self.marks.last().is_some_and(|&m| m >= self.stack.len()) {
            return Err("a value is missing on the stack".into());
        }
        self.stack.pop().ok_or_else(|| "a value is missing on the stack".into())
    }

    /// The values since the last mark.
    fn pop_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("a mark is missing on the stack")?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, n: usize) -> Result<(), String> {
        let mut items = (0..n).map(|_| self.pop()).collect::<Result<Vec<Id>, String>>()?;
        items.reverse();
        self.push(Node::Tuple(items))
    }

    fn top(&mut self) -> Result<&mut Node<B::Leaf>, String> {
        let id = *self.stack.last().ok_or("a value is missing on the stack")?;
        Ok(&mut self.arena.0[id])
    }

    fn append(&mut self, items: Vec<Id>) -> Result<(), String> {
        self.pay(items.len() as u64 * ID)?;
        match self.top()? {
            Node::List(list) => list.extend(items),
            _ => return Err("only lists can be appended to".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<(), String> {
        if !items.len().is_multiple_of(2) {
            return Err("a key without a value".into());
        }
        self.pay(items.len() as u64 * ID)?;
        match self.top()? {
            Node::Dict(dict) => dict.extend(items.chunks_exact(2).map(|p| (p[0], p[1]))),
            _ => return Err("only dictionaries have items".into()),
        }
        Ok(())
    }

    fn put_memo(&mut self, key: u32) -> Result<(), String> {
        let id = *self.stack.last().ok_or("a value is missing on the stack")?;
        self.pay(MEMO)?;
        self.memo.insert(key, id);
        Ok(())
    }

    fn get_memo(&mut self, key: u32) -> Result<(), String> {
        let id = *self.memo.get(&key).ok_or_else(|| format!("memo {key} was never set"))?;
        self.pay(ID)?;
        self.stack.push(id);
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), String> {
        let global = format!("{module}.{name}");
        if !self.builder.knows(&global) {
            return Err(format!(
                "`{global}` is not allowed: only tensors, numbers, strings and plain containers are read, and nothing is executed"
            ));
        }
        self.push(Node::Global(global))
    }

    /// One instruction; the result at the last one.
    fn step(&mut self) -> Result<Option<Id>, String> {
        match self.take(1)?[0] {
            b'\x80' => {
                let [version] = self.number()?;
                if version > 5 {
                    return Err(format!("unsupported pickle protocol {version}"));
                }
            }
            b'.' => return self.pop().map(Some),
            b'N' => self.push(Node::None)?,
            b'\x88' => self.push(Node::Bool(true))?,
            b'\x89' => self.push(Node::Bool(false))?,
            b'J' => {
                let v = i32::from_le_bytes(self.number()?);
                self.push(Node::Int(i64::from(v)))?;
            }
            b'K' => {
                let [v] = self.number()?;
                self.push(Node::Int(i64::from(v)))?;
            }
            b'M' => {
                let v = u16::from_le_bytes(self.number()?);
                self.push(Node::Int(i64::from(v)))?;
            }
            b'\x8a' => {
                let [n] = self.number()?;
                let bytes = self.take(usize::from(n))?;
                if n > 8 {
                    return Err("an integer of more than 64 bits".into());
                }
                let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                let mut wide = [fill; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                self.push(Node::Int(i64::from_le_bytes(wide)))?;
            }
            b'G' => {
                let v = f64::from_be_bytes(self.number()?);
                self.push(Node::Float(v))?;
            }
            b'X' => {
                let n = u32::from_le_bytes(self.number()?);
                self.text(u64::from(n))?;
            }
            b'\x8c' => {
                let [n] = self.number()?;
                self.text(u64::from(n))?;
            }
            b'\x8d' => {
                let n = u64::from_le_bytes(self.number()?);
                self.text(n)?;
            }
            b')' => self.push(Node::Tuple(Vec::new()))?,
            b'\x85' => self.tuple(1)?,
            b'\x86' => self.tuple(2)?,
            b'\x87' => self.tuple(3)?,
            b't' => {
                let items = self.pop_mark()?;
                self.push(Node::Tuple(items))?;
            }
            b']' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b'(' => {
                self.pay(ID)?;
                self.marks.push(self.stack.len());
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(items)?;
            }
            b'q' => {
                let [key] = self.number()?;
                self.put_memo(u32::from(key))?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.number()?);
                self.put_memo(key)?;
            }
            b'\x94' => self.put_memo(self.memo.len() as u32)?,
            b'h' => {
                let [key] = self.number()?;
                self.get_memo(u32::from(key))?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.number()?);
                self.get_memo(key)?;
            }
            b'\x95' => {
                let _frame: [u8; 8] = self.number()?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            b'\x93' => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (module, name) = (self.arena.str(module)?.to_string(), self.arena.str(name)?.to_string());
                self.global(&module, &name)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let node = self.builder.persistent(&self.arena, id)?;
                self.push(node)?;
            }
            b'R' => {
                let (args, function) = (self.pop()?, self.pop()?);
                let Node::Global(global) = self.arena.get(function) else {
                    return Err("only a global can be called".into());
                };
                let args = self.arena.items(args)?;
                let node = self.builder.call(&self.arena, global, args)?;
                self.push(node)?;
            }
            // Attributes of a dictionary (state_dict() keeps its versions there) carry no data.
            b'b' => {
                self.pop()?;
                if !matches!(self.top()?, Node::Dict(_)) {
                    return Err("objects with attributes are not allowed".into());
                }
            }
            other => return Err(format!("instruction {:?} is not allowed", char::from(other))),
        }
        Ok(None)
    }
}
