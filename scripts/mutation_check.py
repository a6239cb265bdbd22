#!/usr/bin/env python3
"""Tests the tests: plants classic bugs of parallel training, one at a time, and checks that a test fails for each.

  scripts/mutation_check.py               all of them, some ten minutes; the status is 0 when every one is caught
  scripts/mutation_check.py --explore     the same, but the explorer looks for each bug, for at most ten minutes; the
                                          status is 0 when it finds 95% of them (an hour)
  scripts/mutation_check.py --only zigzag those whose name contains the text
  scripts/mutation_check.py --list        lists them; the status is 0 when the sources contain each one's line
                                          once, and its test

Works in a copy of the committed sources, build-mutation/, and changes nothing else. A mutation is a replacement in one
file, with the fast test that should fail. A hanging test counts as failed: a wrong collective often makes ranks wait.
"""
import argparse
import fnmatch
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

import planted
from planted import ROOT

COPY = os.path.join(ROOT, "build-mutation")
PATIENCE = 150  # seconds for a test, which takes one to forty
EXPLORING = 600  # seconds for the explorer to find one bug
EXPLORER = ["explore", "parity", "train_gpt"]


@dataclass
class Mutation:
    name: str
    file: str
    old: str  # occurs exactly once
    new: str
    test: str  # binary in build/bin
    cases: str = ""  # doctest's filter of test cases; empty: all
    in_programs: bool = True  # False: only a test's own group shows it, so the explorer, which runs programs, cannot


MUTATIONS = [
    Mutation("a redistribute without its backward (I -> R)", "parallel/mesh/redistribute.cpp",
             "return placement::P;  // each rank has its part of the sum", "return placement::I;", "mesh_test"),
    Mutation("P -> I sums the gradient again", "parallel/mesh/redistribute.cpp",
             "const Tensor dx = move(dy, of_dy, of_dx, {*group, order});",
             "const Tensor dx = move(dy, of_dy == placement::I ? placement::P : of_dy, of_dx, {*group, order});",
             "mesh_test"),
    Mutation("row-parallel bias added before the reduction", "nn/linear.cpp",
             "complete() ? bias() : Tensor()", "bias()",
             "nn_test"),
    Mutation("replicated parameters counted tp times in the norm", "parallel/data_parallel/gradient_norm.cpp",
             "if (part.shards != nullptr) groups.push_back(part.shards);",
             "if (part.parameter->placements.tp.sharded() == false && mesh.size(Axis::tp) > 1) "
             "groups.push_back(&mesh.group(Axis::tp));",
             "grad_sync_test"),
    Mutation("rows of a gradient cut by a shard", "parallel/parameters/shard.cpp", "std::max(1, shape.dims() - 1)",
             "shape.dims()", "zero_test", "*a shard holds whole rows*"),
    Mutation("a tied copy counted in the norm", "parallel/data_parallel/gradient_norm.cpp",
             "if (part.parameter->copy_of_earlier_stage) continue;", "", "grad_sync_test"),
    Mutation("zero-bubble: gradients of gains and biases added in B", "autograd/engine.cpp",
             "add_weight_gradient(*leaf, std::move(add));", "add();", "pipeline_test"),
    Mutation("a gradient counted again after an operation has taken it", "autograd/engine.cpp",
             "? std::exchange(gradient, {}) : Tensor();", "? gradient : Tensor();", "autograd_test",
             "*may add what its input has received*"),
    Mutation("a bias's gradient left to a product that runs later", "autograd/linear_gradients.cpp",
             "return !deferred(weight) || deferred(bias);", "return !deferred(weight) || bias > weight;", "device_test",
             "*a bias that is not deferred*", in_programs=False),
    Mutation("gradients of tied embeddings not summed", "parallel/data_parallel/grad_sync.cpp",
             "for (const ParameterPtr& parameter : tied_) sum(parameter->grad(), *mesh_.pipeline_ends(), "
             "SumOrder::ranks);", "", "grad_sync_test"),
    Mutation("the last bucket not summed", "parallel/data_parallel/grad_sync.cpp",
             "if (!sums_over_data(bucket.axes)) return;",
             "if (!sums_over_data(bucket.axes) || launched_ == buckets_.size()) return;", "grad_sync_test"),
    Mutation("gradients sent before the last micro-batch", "parallel/data_parallel/grad_sync.cpp",
             "if (!in_last_backward_) return;", "", "grad_sync_test"),
    Mutation("a mean of micro-batches' means", "train/step/trainer.cpp",
             "double scale = per_target_ * scaler_.scale();",
             "double scale = per_target_ * scaler_.scale() / static_cast<double>(batch_.micro_batches);",
             "parity_test", "*equals the whole batch at once*"),
    Mutation("gradients of norms not summed over tp under sequence parallelism", "nn/module.cpp",
             "{width}, {.tp = b.per_position_placement()}, Init::constant(zero_centred ? 0 : 1))) {\n",
             "{width}, {}, Init::constant(zero_centred ? 0 : 1))) {\n", "nn_test"),
    Mutation("a router's load of this rank only", "nn/routing.cpp", "mesh.group(Axis::data).all_reduce(all).wait();", "",
             "parity_test", "*routers' biases*"),
    Mutation("a recomputed router counted twice", "nn/router.cpp",
             "if (!training() || !grad_enabled()) return choice;",
             "if (!training()) return choice;",
             "nn_test", "*without the tape*"),
    Mutation("wrong zigzag", "nn/positions.cpp", "append(runs, (chunks - 1 - rank) * chunk, chunk);",
             "append(runs, (chunks / 2 + rank) * chunk, chunk);", "nn_test"),
    Mutation("ring attention: the wrong half of the keys", "nn/ring_attention.cpp", "if (s.source < rank) s.keys = half;",
             "if (s.source < rank) s.keys = half, s.first_key = half;", "nn_test"),
    Mutation("learned positions by their place on the rank", "models/gpt.cpp",
             "slice(positions_->value(), 0, run.global, run.length)", "slice(positions_->value(), 0, run.local, run.length)",
             "parity_test", "*cut over cp*"),
    Mutation("dropout masks by place on the rank", "nn/sample_dropout.cpp",
             "where.start[1] = positions.global;", "where.start[1] = positions.local;", "nn_test"),
    Mutation("dropout masks by place in the micro-batch", "nn/sample_dropout.cpp",
             ".start = x.shape().with(0, first_sample)};", ".start = x.shape().with(0, first_sample * 0)};", "nn_test"),
    Mutation("padded vocabulary inside the softmax", "nn/vocab_embedding.cpp",
             "slice_.valid = std::clamp<std::int64_t>(vocab - slice_.first, 0, weight_->local.size(0));",
             "slice_.valid = weight_->local.size(0);", "nn_test"),
    Mutation("cross-entropy with each rank's own maximum", "nn/cross_entropy.cpp",
             "options.group->all_reduce(maximum, ReduceOp::max).wait();", "", "nn_test"),
    Mutation("initial values by place on the rank", "nn/init.cpp",
             "std::int64_t index = local.dims() ? rectangle.start[-1] : 0, rest = row;",
             "std::int64_t index = 0, rest = row;", "nn_test"),
    Mutation("gradients of experts summed over all data ranks", "parallel/mesh/placement.cpp",
             "sum_over(over_edp ? Axis::edp : Axis::ep);", "sum_over(Axis::data);", "mesh_test"),
    Mutation("router losses scaled by the micro-batch", "nn/router.cpp",
             "const auto sequences = static_cast<double>(run_state().step_sequences);",
             "const auto sequences = static_cast<double>(logits.size(0));", "nn_test"),
    Mutation("ZeRO-2 keeps the last micro-batch only", "parallel/zero/gradients.cpp",
             "axpby(1.0, sent.piece, 1.0, sum);", "axpby(1.0, sent.piece, 0.0, sum);", "zero_test"),
    Mutation("a head read outside its unit", "models/gpt.cpp",
             "gathered(capped(use_head_(slice(all, 1, position, 1), logits_of)))",
             "gathered(capped(logits_of(slice(all, 1, position, 1))))", "zero_test", "*logits after a step*"),
    Mutation("gains of the norms of queries and keys not summed over tp", "nn/attention.h",
             "{width}, {.tp = placement::R}", "{width}, {.tp = placement::I}", "parity_test",
             "*part of later decoders*"),
    Mutation("a window that begins a token early", "nn/documents.cpp", "first + t - window + 1", "first + t - window",
             "nn_test", "*positions within documents*"),
    Mutation("Muon: a matrix without the parts of the other tp ranks", "optim/whole_matrices.cpp",
             "range.start = tp * range.length;",
             "range.start = std::max(tp * 0, mesh.coord(Axis::tp)) * range.length;", "optim_test",
             "*any mesh*"),
    Mutation("Adafactor: statistics stay with the owners of matrices", "optim/whole_matrices.cpp",
             "plan.holders.group->all_reduce(packed).wait();", "", "optim_test", "*any mesh*"),
    Mutation("ZeRO: the norm of one shard", "parallel/zero/zero.cpp",
             "bucket.in_piece(gradients_.piece(b), i), bucket.group}", "bucket.in_piece(gradients_.piece(b), i)}",
             "zero_test", "*norm*"),
    Mutation("zero-bubble: weights' part of a backward lost", "parallel/pipeline/schedule.cpp",
             "if (rank.backwarded - rank.finished > r) rank.backward_weight();",
             "if (rank.backwarded - rank.finished > r) ++rank.finished;", "pipeline_test"),
    Mutation("clipping by the norm of scaled gradients", "train/step/step_numbers.h",
             "std::sqrt(copy_.get().data<double>()[1]) / loss_scale_", "std::sqrt(copy_.get().data<double>()[1])",
             "parity_test", "*loss scale*"),
    Mutation("an update on a GPU with a loss that is not finite", "core/update_scale.h",
             "norm < infinite && loss < infinite && loss > -infinite",
             "norm < infinite && (loss < infinite || loss > -infinite)", "core_test", "*update_scale*"),
    Mutation("recomputation draws another dropout mask", "models/model.cpp", "std::exchange(*run, state)",
             "std::exchange(*run, *run)", "parity_test", "*recomputation gives the same bits*"),
    Mutation("16-bit gradients summed in 16 bits", "parallel/data_parallel/grad_sync.cpp",
             "const Tensor gradients = Tensor::zeros({count}, DType::f32, device);  // [n]",
             "const Tensor gradients = Tensor::zeros({count}, DType::bf16, device);", "parity_test", "*bf16*"),
    Mutation("copies whose gradients are summed in other orders", "parallel/mesh/placement.cpp",
             "return copies ? SumOrder::ranks : SumOrder::any;", "return copies ? SumOrder::any : SumOrder::any;",
             "parity_test", "*keep copies equal*", in_programs=False),  # MPI adds in the same order in all groups
    # Programs build the same model on all ranks, and sum gradients before they use them.
    Mutation("ranks that build different models", "parallel/parameters/same_model.cpp", "if (!difference) return;", "return;",
             "grad_sync_test", "*build the model with other seeds*", in_programs=False),
    Mutation("norms and steps before the sums", "parallel/parameters/parameter.cpp", "if (gradient_summed) return;",
             "return;", "grad_sync_test", "*refuse gradients that were not summed*", in_programs=False),
]


def run(command, **more):
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True, errors="replace", check=False, **more)


def prepare(targets):
    """Makes a copy of the committed sources with its own build folder; the compiler cache makes it fast."""
    shutil.rmtree(COPY, ignore_errors=True)
    planted.write_changed(COPY, planted.committed())
    # Without nvcc, which takes minutes: no mutation is in what it compiles.
    for command in (["cmake", "--preset", "release", "-DTRIREME_CUDA=OFF"], build_command(targets)):
        result = run(command)
        if result.returncode != 0:
            sys.exit(f"mutation_check: '{' '.join(command)}' failed in {COPY}:\n"
                     f"{result.stdout[-3000:]}{result.stderr[-2000:]}")


def build_command(targets):
    return ["cmake", "--build", "build", "--target", *targets]


def test(mutation):
    """(whether the test failed, how)."""
    if run(build_command([mutation.test])).returncode != 0:
        return False, "DOES NOT COMPILE: a mutation must be a program"
    command = [f"build/bin/{mutation.test}", *([f"-tc={mutation.cases}"] if mutation.cases else [])]
    try:
        result = run(command, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return True, "a test that waits in vain"
    if "| 0 passed" in re.sub(" +", " ", result.stdout) and result.returncode == 0:
        sys.exit(f"mutation_check: no test case of {mutation.test} is named {mutation.cases}")
    if result.returncode == 0:
        return False, ""
    case = re.search(r"^TEST CASE: +(.*)$", result.stdout, re.MULTILINE)
    return True, case.group(1) if case else f"{mutation.test} ended with status {result.returncode}"


def explore(mutation):
    """As test(), with the explorer, which does not know the bug."""
    if run(build_command(EXPLORER)).returncode != 0:
        return False, "DOES NOT COMPILE: a mutation must be a program"
    start = time.monotonic()
    result = run(["build/bin/explore", "--first", "--seconds", str(EXPLORING)], timeout=2 * EXPLORING)
    found = re.search(r"^WRONG \((.*?)\): (.{0,120})", result.stdout, re.MULTILINE)
    if found is None:
        return False, result.stdout[-300:]
    return True, f"{time.monotonic() - start:.0f} s, {found.group(1)}: {found.group(2)}"


@functools.cache
def test_cases():
    """The names of all test cases."""
    names = []
    for folder, _, files in os.walk(os.path.join(ROOT, "tests")):
        for path in (os.path.join(folder, name) for name in files if name.endswith((".cpp", ".h"))):
            with open(path, encoding="utf-8") as file:
                found = re.findall(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', file.read())
            names += [re.sub(r'"\s*"', "", strings.strip())[1:-1] for strings in found]
    return names


def why_not_planted(mutation):
    """Why the mutation can't be planted in the sources of this checkout, or which test is missing; empty when all is
    there."""
    with open(os.path.join(ROOT, mutation.file), encoding="utf-8") as file:
        if why := planted.why_not_planted(mutation, file.read()):
            return why
    if "," in mutation.cases:  # doctest takes what follows for another filter
        return f"'{mutation.cases}' has a comma"
    if mutation.cases and not fnmatch.filter(test_cases(), mutation.cases):
        return f"no test case is named {mutation.cases}"
    return ""


def check(mutation, look):
    path = os.path.join(COPY, mutation.file)
    with open(path, encoding="utf-8") as file:
        source = file.read()
    if why := planted.why_not_planted(mutation, source):
        return False, f"NOT PLANTED: {why}"
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(source.replace(mutation.old, mutation.new))
        return look(mutation)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="mutations whose name contains TEXT")
    parser.add_argument("--list", action="store_true",
                        help="print the mutations and where one no longer has a line or a test, run nothing")
    parser.add_argument("--explore", action="store_true", help="let the explorer find each bug, not the test that knows it")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only in m.name and (m.in_programs or not options.explore)]
    if not chosen:
        sys.exit(f"mutation_check: no mutation is named '{options.only}'; see --list")
    if options.list:
        wrong = {m.name: why_not_planted(m) for m in chosen}
        for mutation in chosen:
            print(f"{'FAILED: ' if wrong[mutation.name] else ''}{mutation.name}: {mutation.file}, {mutation.test} "
                  f"{wrong[mutation.name]}")
        return 1 if any(wrong.values()) else 0
    look = explore if options.explore else test
    prepare(EXPLORER if options.explore else sorted({m.test for m in chosen}))
    caught = 0
    for mutation in chosen:
        noticed, how = check(mutation, look)
        caught += noticed
        print(f"{'caught  ' if noticed else 'SURVIVED'} | {mutation.name} | {mutation.file} | {how}", flush=True)
    print(f"{caught} caught, {len(chosen) - caught} survived")
    return 0 if caught >= (0.95 if options.explore else 1) * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
