//! The hooks that random closures register.

use super::OWN_ERROR;
use super::program::{Outside, Statement, Statement::*};
use super::statements::Frame;
use firebrand_compile::hooks::register_pure_hook;
use firebrand_core::autograd::{
    get_gradient_edge, queue_callback, register_multi_grad_hook, register_multi_grad_hook_any,
};
use firebrand_core::{Error, Result, Tensor};

impl Frame<'_> {
    pub(super) fn hook(&mut self, k: usize, s: Statement) -> Result<()> {
        let v = |i: usize| self.value(i);
        let wanted = |i: usize| self.value(i).requires_grad();
        let handle = match s {
            Hook(a) if wanted(a) => {
                let see = self.logged(k, "hook");
                v(a).try_register_hook(move |g: &Tensor| {
                    see(Some(g));
                    g * 0.5
                })?
            }
            PureHook(a) if wanted(a) => {
                register_pure_hook(&v(a), |g: &Tensor| if g.size(0) > 3 { g * 0.75 } else { g.sin() })?
            }
            PureHookHolding(a, b) if wanted(a) => {
                let held = v(b).detach();
                register_pure_hook(&v(a), move |g: &Tensor| g * &held)?
            }
            HookWithArgument(a, b) if wanted(a) => {
                let (held, log) = (self.arguments[b % 3].clone(), self.log.clone());
                v(a).try_register_hook(move |g: &Tensor| {
                    log.see(format!("{k} held"), Some(&held.data()));
                    log.see(format!("{k} its gradient"), held.grad().filter(|_| held.is_leaf()).as_ref());
                    log.say(format!("{k} version {}", held.version()));
                    g * &held.detach().tanh()
                })?
            }
            HookWithValue(a, b) if wanted(a) => {
                let (held, see) = (v(b), self.logged(k, "value"));
                v(a).try_register_hook(move |g: &Tensor| {
                    see(Some(&held.detach()));
                    g * &held.detach().cos()
                })?
            }
            HookWithSizes(a, b) if wanted(a) => {
                let (held, log, number) = (v(b), self.log.clone(), self.number.clone());
                let n = held.size(0) * 2 + 1;
                v(a).try_register_hook(move |g: &Tensor| {
                    let sizes = (held.shape().to_vec(), held.numel(), held.size(0).int(), n.int());
                    let flags = (held.requires_grad(), held.is_leaf(), held.is_meta(), held.is_contiguous());
                    log.say(format!("{k} sizes {sizes:?} flags {flags:?} number {:?}", number.value()));
                    &(g * n) * &number * 0.1
                })?
            }
            HookOnArgument(kind, a, b) if wanted(a) && self.program.outside.accumulates() => {
                let (held, see) = (self.arguments[b % 3].clone(), self.logged(k, "on an argument"));
                v(a).try_register_hook(move |g: &Tensor| -> Result<()> {
                    see(Some(g));
                    match kind {
                        0 => held.zero_grad(),
                        1 if held.is_leaf() => held.try_set_grad(Some(&held.detach().sin()))?,
                        _ if held.requires_grad() => {
                            let see = see.clone();
                            held.try_register_hook(move |g: &Tensor| see(Some(g)))?;
                        }
                        _ => {}
                    }
                    Ok(())
                })?
            }
            HookWithCallback(a) if wanted(a) => {
                let (log, see) = (self.log.clone(), self.logged(k, "asks"));
                v(a).try_register_hook(move |g: &Tensor| -> Result<()> {
                    see(Some(g));
                    let log = log.clone();
                    queue_callback(move || {
                        log.say(format!("{k} at the end"));
                        Ok(())
                    })
                })?
            }
            HookOnCell(a) if wanted(a) && self.program.outside.is_plain() => {
                let (cell, see) = (self.cell.clone(), self.logged(k, "cell"));
                v(a).try_register_hook(move |g: &Tensor| -> Result<()> {
                    let held = cell.get();
                    see(Some(&held));
                    cell.set(held.detach().try_mul(&g.detach().tanh())?);
                    Ok(())
                })?
            }
            HookOnCaptured(a) if self.program.outside.is_plain() => {
                let (held, see) = (self.value(a).detach(), self.logged(k, "on what is captured"));
                self.world.leaf.try_register_hook(move |g: &Tensor| {
                    see(Some(g));
                    see(Some(&held));
                })?
            }
            RemoveGiven => {
                self.given.remove();
                return Ok(());
            }
            HookRemoving(a, b) if wanted(a) && !self.handles.is_empty() => {
                let (other, see) = (self.handles[b % self.handles.len()].clone(), self.logged(k, "removes"));
                v(a).try_register_hook(move |g: &Tensor| {
                    see(Some(g));
                    other.remove();
                })?
            }
            FailingHook(a) if wanted(a) => {
                let n = v(a).size(0).int();
                v(a).try_register_hook(move |_: &Tensor| match n {
                    5 => Err(Error::argument("hook", OWN_ERROR)),
                    _ => Ok(()),
                })?
            }
            Remove(a) if !self.handles.is_empty() => {
                let at = a % self.handles.len();
                self.handles.remove(at).remove();
                return Ok(());
            }
            NodeHook(a) if wanted(a) => {
                let see = self.logged(k, "node");
                get_gradient_edge(&v(a))?.node.register_hook(move |outgoing, incoming| {
                    incoming.iter().for_each(|g| see(g.as_ref()));
                    Ok(Some(outgoing.iter().map(|g| g.as_ref().map(|g| g * 0.5)).collect()))
                })
            }
            NodePreHook(a) if wanted(a) => {
                let see = self.logged(k, "before the node");
                get_gradient_edge(&v(a))?.node.register_prehook(move |incoming| {
                    incoming.iter().for_each(|g| see(g.as_ref()));
                    Ok(Some(incoming.iter().map(|g| g.as_ref().map(|g| g * 0.25)).collect()))
                })
            }
            MultiHook(a, b) if wanted(a) && wanted(b) && self.program.outside.accumulates() => {
                let see = self.logged(k, "all");
                register_multi_grad_hook(&[&v(a), &v(b)], move |grads| {
                    grads.iter().for_each(|g| see(g.as_ref()));
                    Ok(())
                })?;
                return Ok(());
            }
            MultiHookAny(a, b) if wanted(a) && wanted(b) => {
                let see = self.logged(k, "any");
                register_multi_grad_hook_any(&[&v(a), &v(b)], move |g| {
                    see(Some(g));
                    Ok(())
                })?;
                return Ok(());
            }
            MultiHookTwice(a, b) if wanted(a) && wanted(b) && self.program.outside.accumulates() => {
                let (all, any) = (self.logged(k, "all"), self.logged(k, "any"));
                let of = [&v(a), &v(a), &v(b)];
                let gone = register_multi_grad_hook(&of, |_| Err(Error::user("a hook that was removed")))?;
                register_multi_grad_hook(&of, move |grads| {
                    grads.iter().for_each(|g| all(g.as_ref()));
                    Ok(())
                })?;
                register_multi_grad_hook_any(&of, move |g| {
                    any(Some(g));
                    Ok(())
                })?;
                gone.remove();
                return Ok(());
            }
            ScopedHook(a) if wanted(a) => {
                let (gone, see) = (self.logged(k, "gone"), self.logged(k, "stays"));
                let t = v(a);
                let _gone = t.try_register_hook(move |g: &Tensor| gone(Some(g)))?.scoped();
                t.try_register_hook(move |g: &Tensor| {
                    see(Some(g));
                    g * 1.5
                })?
            }
            PostAccumulate(a) if wanted(a) && v(a).is_leaf() => {
                let log = self.log.clone();
                v(a).try_register_post_accumulate_grad_hook(move |t: &Tensor| {
                    log.see(format!("{k} accumulated"), t.grad().as_ref())
                })?
            }
            PostAccumulateClearing(a) if wanted(a) && v(a).is_leaf() => {
                let log = self.log.clone();
                v(a).try_register_post_accumulate_grad_hook(move |t: &Tensor| {
                    log.see(format!("{k} cleared"), t.grad().as_ref());
                    t.zero_grad();
                })?
            }
            Retain(a) if wanted(a) => return v(a).try_retain_grad(),
            _ => return Ok(()),
        };
        if self.program.outside != Outside::Vmap {
            self.handles.push(handle);
        }
        Ok(())
    }
}
