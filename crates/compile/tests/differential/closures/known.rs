//! Closures that have differed, cut down. Ids are those of docs/behaviour/compile-and-hooks.md, section (l).

use super::program::{Alias, Outside, Program, Statement, Statement::*};

fn program(statements: &[Statement], leaves: [bool; 2], results: &[usize], outside: Outside) -> Program {
    Program {
        statements: statements.to_vec(),
        leaves,
        alias: Alias::Nothing,
        results: results.to_vec(),
        chosen: vec![true; results.len()],
        sizes: [3, 4, 5, 6],
        outside,
    }
}

pub(super) fn known() -> Vec<(&'static str, Program)> {
    let hook_on_a_view = [Cell(49), Spread(57), Binary(3, 33, 35), View(11), MultiHookAny(33, 13)];
    let held_and_detached = [
        Jacrev(63, 7),
        Binary(1, 39, 23),
        Nothing,
        Nested(0, 43, 23),
        Spread(5),
        Binary(3, 49, 21),
        View(9),
        Nothing,
        Vjp(23, 58),
        Unary(2, 23),
    ];
    let tangent = Program {
        chosen: vec![true, false, true],
        sizes: [4, 1, 3, 3],
        ..program(
            &[Nothing, Dropout(57), Jacrev(56, 19), Nested(0, 6, 29)],
            [false, false],
            &[55, 27, 59],
            Outside::Second,
        )
    };
    let mut all = vec![
        ("X-76", program(&hook_on_a_view, [false, true], &[61], Outside::Second)),
        ("X-77", program(&held_and_detached, [false, true], &[43], Outside::Second)),
        ("X-77", tangent),
        ("X-78", program(&[Hook(0), HookRemoving(0, 0), Unary(0, 0)], [true, true], &[3], Outside::Twice)),
        ("X-78", program(&[Unary(0, 0), Hook(3), HookRemoving(3, 0), Unary(0, 3)], [true, true], &[4], Outside::Twice)),
        ("X-79", program(&[CustomTwo(0, 1)], [false, true], &[3, 4], Outside::Backward)),
        ("X-79", program(&[CustomTwo(1, 2), NodeHook(3)], [false, true], &[3], Outside::Backward)),
        (
            "X-86",
            program(
                &[Binary(1, 1, 0), Binary(2, 3, 1), Write(2, 3), Unary(0, 4)],
                [false, false],
                &[5],
                Outside::Inputs,
            ),
        ),
        ("X-87", program(&[Unary(0, 0), PureHook(3), HookRemoving(3, 0)], [true, true], &[3], Outside::Twice)),
        ("X-87", program(&[Unary(0, 0), PureHook(3), Break, Remove(0)], [true, true], &[3], Outside::Twice)),
        ("X-88", program(&[HookWithSizes(0, 0), Break, Unary(0, 0)], [true, true], &[3], Outside::Backward)),
        ("X-85", program(&[CustomTwo(0, 1)], [false, false], &[4], Outside::Backward)),
        (
            "X-84",
            program(
                &[NewLeaf(0), CheckpointHolding(3, 2), HookWithArgument(3, 2), Unary(0, 3), Hook(5)],
                [true, true],
                &[4, 5],
                Outside::Backward,
            ),
        ),
        ("X-84", program(&[Break, WriteValue(2, 0), Look(2), Hook(2)], [true, true], &[2], Outside::Backward)),
    ];
    all.extend(of_late());
    all
}

/// Those from X-102 on.
fn of_late() -> Vec<(&'static str, Program)> {
    let on_a_loose_view = [LooseView(0), SavedScaled(0, 2), HookWithSizes(3, 4), Write(3, 0)];
    let accumulated = [LooseView(0), PostAccumulate(3), Write(0, 3)];
    let puts_hooks = [Checkpoint(0, true), MultiHook(0, 3), PureHook(1), HookOnArgument(1, 3, 1)];
    let written = [Binary(3, 1, 1), Unary(0, 0), Write(3, 3)];
    let written_twice = [Unary(2, 1), HookWithArgument(3, 2), Write(2, 2), Spread(3), Write(2, 2)];
    let freed = [Binary(1, 0, 0), Binary(0, 1, 1), NodePreHook(0), HookWithSizes(4, 3)];
    let hooked_and_loose = [Unary(3, 0), FailingHook(3), LooseView(3), Binary(3, 1, 1)];
    let beside_a_view = [Dropout(1), Binary(0, 2, 0), Unary(3, 3), Hook(3), Unary(0, 0), Binary(1, 3, 4), LooseView(4)];
    let behind_a_view = [Dropout(1), Unary(1, 3), Nested(0, 0, 3), Binary(2, 2, 0), LooseView(5), Binary(3, 5, 7)];
    let lost_with_its_node = [GradInside(1, 0), Unary(0, 0), NodeHook(1), Unary(1, 1), Nested(0, 4, 2)];
    let first_of_two = |p| Program { chosen: vec![false, true], ..p };
    vec![
        ("X-102", program(&[LooseView(0), SavedScaled(3, 0)], [true, true], &[2, 4], Outside::Backward)),
        ("X-102", program(&[LooseView(1), Unary(4, 3), SavedScaled(4, 3)], [false, false], &[5, 0], Outside::Backward)),
        ("X-103", program(&puts_hooks, [true, false], &[3, 1], Outside::Backward)),
        ("X-104", program(&[Unary(1, 1), PureHook(3), Binary(1, 2, 0)], [true, true], &[4], Outside::Batched)),
        ("X-105", program(&[Cond(1, 0)], [true, true], &[3], Outside::Backward)),
        ("X-105", program(&[Unary(2, 0), Cond(3, 1)], [true, true], &[4, 3], Outside::Twice)),
        ("X-105", program(&[Cond(2, 1)], [false, true], &[3], Outside::Second)),
        ("X-106", program(&on_a_loose_view, [false, true], &[4], Outside::Backward)),
        ("X-106", program(&accumulated, [false, true], &[1], Outside::Backward)),
        ("X-107", first_of_two(program(&written, [false, false], &[3, 4], Outside::Backward))),
        ("X-109", program(&written_twice, [false, true], &[4], Outside::Backward)),
        ("X-109", program(&[HookWithArgument(0, 2), Write(3, 2), WriteSlice(2)], [false, true], &[0], Outside::Quiet)),
        ("X-110", program(&freed, [true, false], &[0], Outside::Quiet)),
        ("X-111", program(&[Unary(3, 0), LooseView(3), Unary(1, 1)], [false, false], &[4, 5], Outside::Backward)),
        ("X-111", program(&hooked_and_loose, [false, false], &[4, 5, 4], Outside::Backward)),
        (
            "X-111",
            program(
                &[Unary(3, 0), Hook(3), View(3), LooseView(4), Unary(1, 1)],
                [true, false],
                &[5, 6],
                Outside::Twice,
            ),
        ),
        ("X-111", program(&[Spread(0), LooseView(3), Unary(0, 3)], [true, false], &[4, 5], Outside::Second)),
        ("X-110", program(&lost_with_its_node, [true, true], &[4], Outside::Backward)),
        (
            "X-106",
            Program {
                chosen: vec![false, false, true],
                ..program(&[LooseView(1), Binary(3, 0, 0), Hook(3)], [false, false], &[3, 3, 4], Outside::Backward)
            },
        ),
        (
            "X-84",
            program(
                &[SavedScaled(2, 2), DetachInPlace(3), ByNumber(0, 0), MultiHookAny(3, 0)],
                [true, true],
                &[4],
                Outside::Backward,
            ),
        ),
        (
            "X-84",
            program(
                &[SavedScaled(0, 1), DetachInPlace(3), MultiHookAny(3, 0), Unary(0, 0)],
                [true, true],
                &[4],
                Outside::Backward,
            ),
        ),
        ("X-142", program(&beside_a_view, [false, false], &[5, 8], Outside::Backward)),
        ("X-142", program(&behind_a_view, [true, false], &[2, 3, 6], Outside::Backward)),
        ("X-108", program(&[LooseView(0), Jacrev(2, 3), SavedScaled(4, 2)], [false, false], &[5], Outside::Backward)),
    ]
}
