# SPDX-License-Identifier: Apache-2.0
"""Labelled programs for every cause: verdict, file and line, promise and real win; and the confusion matrix of all of them.

Each program runs all its forms in turn in one process without gapprobe (what does each fix really win?), then the slow form
and the fixed one alone under gapprobe, nothing annotated, and both once again: verdicts are of each, promises of the medians of all (the host of one
process is up to a quarter faster or slower than that of the next; programs whose runs are too much unlike run up to six times). Part `turns` adds both in turn in one process, the slow one once recorded and once not: what the fix saves between steps that nobody records (for information). Where a proof fails
the program is wrong, not the verdict: the row says so and nothing else of it is judged. Recordings go to causes-<part>.tar.gz with causes.json, what is true of them.
"""

import ast
import gzip
import io
import json
import pathlib
import tarfile

from check import machine, native, pairing, victim
from check.plan import FAIL, INFO, NOT_RUN, PASS
from suites.causes_gpu_bound import GPU_BOUND
from suites.causes_labels import LABELS as OF_IDLE_TIME
from suites.causes_labels import LEAST_WIN, MOST_HARMLESS, SILENT, WINS
from suites.causes_promises import OF_KERNELS, PROMISE_OFF, PROMISE_OVER, in_doubt, judge_promise, judge_promises, judge_turns

NAME = "causes"
LABELS = OF_IDLE_TIME | GPU_BOUND
ABOUT = f"{len(LABELS)} programs, one cause each, some two, some none: verdict, line, promise (parts 1 and 2, some 400 s each before each form ran twice; gpu: those whose GPU is never idle; turns for more)"

PROGRAMS = victim.PROGRAMS / "causes"
MODEL_ERROR = 0.03  # the replay with nothing changed may take so much longer or shorter than what was recorded
RECORDING_BYTES = 300_000  # what a recording for CI may weigh, compressed; larger ones are kept, and named
ARCHIVE_BYTES = 15 << 20
SETUP_S = 25  # a batch of programs until all are ready
EACH_S = 7  # one program's own time, alone
GPU = "gpu"  # the part of those programs
TURNS = "turns"  # the part, and the form, that is for information
AGAIN = " again"  # behind a form's name: its second run; the third is `slow 3`
# gapprobe keeps the recording, in a ring that is large enough for these runs.
ENVIRONMENT = {"GAPPROBE_TEST_KEEP": "1", "GAPPROBE_MAX_MB": "64"}
IN_TURN = {"GAPPROBE_CAPTURE": "profiler", "GAPPROBE_MAX_MB": "64"}


def named_causes(summary):
    """Every cause that the verdict's line names: first, second, and those of a mixed one."""
    v = (summary or {}).get("verdict") or {}
    named = [str(v.get("cause") or ""), str((v.get("then") or {}).get("cause") or "")]
    if named[0] == "MIXED":
        words = str(v.get("text") or "").replace(",", " ").split()
        named += [w for w in words if w.isupper() and len(w) > 3]
    return [n for n in named if n]


def short(ended):
    """What the result file keeps of a run: the recording tells the rest."""
    detail = ended.as_detail()
    if detail["summary"]:
        detail["summary"] = {k: detail["summary"].get(k) for k in ("verdict", "findings", "steps", "devices", "model", "totals")}
    return detail


def found_causes(summary):
    return [str(f.get("cause")) for f in (summary or {}).get("findings") or []]


def marked_lines(program):
    """As `lines_marked`, of a program of this suite; none of one without Python."""
    return {} if LABELS[program].native else lines_marked(source(program))


def source(program):
    """The file of a program."""
    return victim.PROGRAMS / f"{program}.cu" if LABELS[program].native else PROGRAMS / f"{program}.py"


def lines_marked(path):
    """{line: enclosing function} of the lines that end in `# SITE`."""
    lines = path.read_text().splitlines()
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = {}
    for number, text in enumerate(lines, 1):
        if text.endswith("# SITE"):
            around = [f for f in functions if f.lineno <= number <= f.end_lineno]
            found[number] = min(around, key=lambda f: f.end_lineno - f.lineno).name if around else "<module>"
    return found


def proven(label, rounds):
    """(every proof holds, words, {form: win}) from the rounds of --form win."""
    holds, words, wins = True, [], {}
    for form, claim in label.proofs.items():
        middle, low, high = pairing.win(list(zip(rounds["slow"], rounds[form])), rounds=500)
        wins[form] = middle
        good = middle >= LEAST_WIN if claim == WINS else middle < MOST_HARMLESS
        holds = holds and good
        words.append(f"{form} {middle:.1%} [{low:.1%}, {high:.1%}]{'' if good else ' NOT ' + claim}")
    middles = ", ".join(f"{f} {pairing.median(v):.2f}" for f, v in rounds.items())
    return holds, f"{'; '.join(words)}; {middles} ms", wins


def judge_win(plan, program, ended):
    """Whether the label holds; None where the programs themselves failed."""
    rounds = ended.truth.get("rounds_ms")
    if ended.code != 0 or not rounds:
        plan.row(NAME, f"{program}: real win", FAIL, f"program failed, exit {ended.code}: {ended.err[-200:]!r}")
        return None
    label = LABELS[program]
    holds, words, wins = proven(label, rounds)
    plan.row(NAME, f"{program}: real win", INFO if plan.dry else holds, words, "; ".join(
        f"{f} {'>= ' + format(LEAST_WIN, '.0%') if c == WINS else '< ' + format(MOST_HARMLESS, '.0%')}" for f, c in label.proofs.items()))
    return wins if holds else None


def judged(label, form, summary):
    """(right, falsely accused, words): the verdict of one recorded form against its label."""
    named = named_causes(summary)
    first = named[0] if named else ""
    v = (summary or {}).get("verdict") or {}
    words = f"{first} {v.get('confidence') or ''} {v.get('text') or ''}".strip()
    if form == "fixed":
        false = first not in SILENT and first not in label.fixed
        # several together: right if each of them is, or is the GPU's own (the spacing of kernels
        # accuses nobody)
        also = ("KERNEL-GAP", *label.beside) if any(n in label.fixed for n in named) else ("KERNEL-GAP",)
        parts = named[1:] if first == "MIXED" else [first]
        return bool(parts) and all(p in label.fixed or (first == "MIXED" and p in also) for p in parts), false, words
    accused = [n for n in named if n in label.forbidden]
    if accused:
        return False, True, f"names {accused[0]}: {words}"
    if first in label.causes:
        missing = [c for c in label.causes if c not in named + found_causes(summary)] if label.both else []
        return not missing, False, words + (f"; {missing[0]} not found" if missing else "")
    return False, first not in SILENT and first not in label.coarse, words


def right_line(path, expected, site):
    """Whether the line that a verdict names is one of the `expected` ones of that file, in its function (or a lambda in that line)."""
    file, line, function = pathlib.Path(str(site.get("file"))).name, site.get("line"), str(site.get("function"))
    return file == path.name and line in expected and function.split(".")[-1] in (expected[line], "<lambda>")


def judge_site(plan, program, summary):
    """The line of Python that is named, against the marked ones. Absent: not run, which is no pass."""
    expected = marked_lines(program)
    site = ((summary or {}).get("verdict") or {}).get("site")
    said = "; ".join(f"{program}.py:{n} in {f}" for n, f in expected.items())
    if site is None:
        return plan.row(NAME, f"{program}: line", NOT_RUN, "the verdict names no line", said)
    right = right_line(source(program), expected, site)
    return plan.row(NAME, f"{program}: line", right, f"{pathlib.Path(str(site.get('file'))).name}:{site.get('line')} in {site.get('function')}", said)


def judge_models(plan, ran):
    """The replay with nothing changed, of each recorded form alone (the turns' blocks are no one program's steps). `ran`: {(program, form): ended}."""
    errors = {}
    for (program, form), ended in ran.items():
        model = (ended.summary() or {}).get("model") or {}
        if form != "turns" and model.get("error") is not None:
            errors[f"{program} {form}"] = model["error"]
    if errors:
        worst = max(errors, key=lambda name: abs(errors[name]))
        within = sum(abs(e) <= MODEL_ERROR for e in errors.values())
        plan.row(NAME, "replay with nothing changed", within == len(errors),
                 f"{within} of {len(errors)} within {MODEL_ERROR:.0%}; worst {worst} {errors[worst]:.2%}", f"all within {MODEL_ERROR:.0%}")


class Matrix:
    """Truth against verdict, one count a recorded form whose label is proven."""

    def __init__(self):
        self.cells, self.right, self.wrong, self.false, self.unproven, self.missing = {}, [], [], [], [], []

    def add(self, truth, verdict, name, right, false):
        row = self.cells.setdefault(truth, {})
        row[verdict] = row.get(verdict, 0) + 1
        (self.right if right else self.false if false else self.wrong).append(name)

    def as_detail(self):
        return {"rows are truth, columns the verdict": self.cells, "right": self.right, "wrong": self.wrong,
                "falsely accused (counts double)": self.false, "label not proven": self.unproven, "not run": self.missing,
                "points lost": self.points}

    @property
    def points(self):
        return len(self.wrong) + 2 * len(self.false)

    def text(self):
        columns = sorted({c for row in self.cells.values() for c in row})
        width = max([len(t) for t in self.cells] + [5])
        lines = ["causes: truth (rows) against verdict (columns)", " " * width + "".join(f"  {c}" for c in columns)]
        for truth, row in sorted(self.cells.items()):
            lines.append(f"{truth:<{width}}" + "".join(f"  {row.get(c) or '.':>{len(c)}}" for c in columns))
        for title, names in (("wrong", self.wrong), ("falsely accused, counted double", self.false),
                             ("label not proven, not judged", self.unproven), ("not run", self.missing)):
            if names:
                lines.append(f"{title}: {', '.join(names)}")
        lines.append(f"{len(self.right)} right, {len(self.wrong)} wrong, {len(self.false)} falsely accused: {self.points} points lost")
        return "\n".join(lines)


def of_form(form):
    """The program's form: `fixed again` and `fixed 3` are `fixed`."""
    return form.partition(" ")[0]


def truth_of(label, form):
    return "fixed: nothing left" if of_form(form) == "fixed" else "+".join(label.causes) if label.both else "/".join(label.causes)


def judge_run(plan, matrix, program, form, ended, holds):
    """One recorded form. `holds`: whether the label is proven."""
    label, summary, name = LABELS[program], ended.summary(), f"{program} {form}"
    if ended.code != 0 or ended.late or summary is None:
        matrix.missing.append(name)
        plan.row(NAME, f"{name}: verdict", FAIL,
                 f"exit {ended.code}, late {ended.late}, summary {summary is not None}: {ended.err[-160:]!r}")
        return
    right, false, words = judged(label, of_form(form), summary)
    steps = f"{(summary.get('steps') or {}).get('count')} steps found, {ended.truth.get('true_steps')} true"
    if not holds:
        matrix.unproven.append(name)
        plan.row(NAME, f"{name}: verdict", NOT_RUN, f"program wrong or its win not measured; says {words}")
        return
    expected = label.fixed if of_form(form) == "fixed" else label.causes
    matrix.add(truth_of(label, form), named_causes(summary)[0] if named_causes(summary) else "none", name, right, false)
    plan.row(NAME, f"{name}: verdict", right, f"{'FALSE ACCUSATION ' if false else ''}{words}; {steps}",
             (" and " if label.both and of_form(form) == "slow" else " or ").join(expected)
             + (f", not {' or '.join(label.forbidden)}" if label.forbidden else ""))
    if of_form(form) == "slow" and label.site:
        judge_site(plan, program, summary)


class Archive:
    """The recordings, small, and causes.json: what CI needs to judge them again."""

    def __init__(self, plan, name):
        self.plan, self.path, self.known, self.bytes, self.left_out, self.heavy = plan, plan.out / name, {}, 0, [], []
        self.tar = tarfile.open(self.path, "w:gz", compresslevel=1)

    def add(self, program, form, ended, proven_label):
        key = f"{program}.{form}"
        label = LABELS[program]
        self.known[key] = {
            "program": program, "form": form, "causes": label.fixed if form == "fixed" else label.causes, "kind": label.kind,
            "forbidden": label.forbidden, "both": label.both, "proven": proven_label, "truth": ended.truth,
            "verdict": (ended.summary() or {}).get("verdict"), "line": ended.line,
            "sites": marked_lines(program) if form == "slow" and label.site else {}}
        found = ended.recordings()
        if not found:
            return
        data = gzip.compress(max(found, key=lambda p: p.stat().st_size).read_bytes(), 9)
        if self.bytes + len(data) > ARCHIVE_BYTES:
            self.left_out.append(key)
            return
        if len(data) > RECORDING_BYTES:
            self.heavy.append(f"{key} {len(data) // 1000} kB")
        self.bytes += len(data)
        self._put(f"{key}.gprec.gz", data)
        for path in found:
            path.unlink()

    def _put(self, name, data):
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        self.tar.addfile(entry, io.BytesIO(data))

    def tell_runs(self, program, runs):
        """What each of a program's runs took by its own clock, ms a step; `runs`: {"slow": its runs, "fixed": its runs}."""
        for form, ended in runs.items():
            if (known := self.known.get(f"{program}.{form}")) is not None:
                known["runs_ms"] = [e.truth.get("step_ms") for e in ended]

    def close(self):
        self._put("causes.json", json.dumps({"machine": self.plan.machine, "recordings": self.known}, indent=1).encode())
        self.tar.close()
        if self.plan.dry:
            return
        kept = len(self.known) - len(self.left_out)
        self.plan.row(NAME, "recordings kept", INFO,
                      f"{kept} in {self.path.name}, {self.bytes / 1e6:.1f} MB; above {RECORDING_BYTES // 1000} kB: {self.heavy or 'none'}; "
                      f"no room for {self.left_out or 'none'}")


def chosen(only):
    """Programs by name; `gpu`: those whose GPU is never idle; `1` and `2`: halves of the others, every second one each."""
    if only is None:
        return list(LABELS)
    names = list(OF_IDLE_TIME)
    unknown = [o for o in only if o not in LABELS and o not in ("1", "2", GPU, TURNS)]
    if unknown:
        raise ValueError(f"no such program: {', '.join(unknown)}")
    if set(only) == {TURNS}:
        return names
    bound = [n for n in GPU_BOUND if n in only or GPU in only]
    return [n for i, n in enumerate(names) if n in only or str(1 + i % 2) in only] + bound


def forms_of(label, turns):
    """The forms of a program, in their order. A form that promises nothing runs once."""
    alone = ["slow", "fixed"] if label.fixed else ["slow"]
    again = [form + AGAIN for form in alone] if label.fixed and not label.both else []
    in_turn = turns and label.fixed and not label.native and not label.both
    return (["win"] if label.proofs else []) + alone + again + ([TURNS] if in_turn else [])


def start_of(plan, program, form, built):
    """Starts one gated process. `built`: paths of the native ones."""
    short = ["--rounds", "2"] if plan.quick or plan.dry else []
    steps = ["--steps", "12"] if plan.quick or plan.dry else []
    options = ["--form", of_form(form), *(short if form in ("win", "turns") else steps)]
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **(IN_TURN if form == "turns" else ENVIRONMENT)}
    if LABELS[program].native:
        command, env = [built[program], *options], {**env, **native.cupti()}
        return victim.Victim(plan, command, ours=form != "win", env=env, gate=True, name=program)
    return victim.python(plan, f"causes/{program}", *options, ours=form != "win", env=env, gate=True)


class Runs:
    """What has run so far, by (program, form), and what is said of it."""

    def __init__(self, plan, built, archive):
        self.plan, self.built, self.archive, self.matrix, self.wins, self.ran = plan, built, archive, Matrix(), {}, {}

    def play(self, keys):
        """Runs these; whether there was time for all of them."""
        starts = [(key, lambda key=key: start_of(self.plan, *key, self.built)) for key in keys]
        all_ran = True
        for (program, form), ended in victim.ready_together(self.plan, starts, SETUP_S, EACH_S):
            all_ran = all_ran and ended is not None
            if ended is not None:
                self.take(program, form, ended)
            elif form[-1].isdigit():  # its promise is judged by fewer runs, and the row says how well that is known
                self.plan.row(NAME, f"{program} {form}", INFO, "no time left")
            else:
                self.matrix.missing.append(f"{program} {form}")
                self.plan.row(NAME, f"{program} {form}", NOT_RUN, "no time left")
        return all_ran

    def take(self, program, form, ended):
        self.plan.detail(NAME, f"{program} {form}", short(ended))
        if form == "win":
            self.wins[program] = judge_win(self.plan, program, ended)
            return
        holds = self.wins.get(program) is not None or not LABELS[program].proofs
        if self.plan.dry:
            timed = "rounds_ms" if form == "turns" else "step_ms"
            self.plan.row(NAME, f"{program} {form}", ended.code == 0 and timed in ended.truth, f"exit {ended.code} {ended.err[-200:]!r}")
            return
        if form != "turns":
            judge_run(self.plan, self.matrix, program, form, ended, holds)
            if form == of_form(form):
                self.archive.add(program, form, ended, holds)
        self.ran[program, form] = ended

    def promising(self):
        """{program: {"slow": its runs, "fixed": its runs}} of those whose promises are judged."""
        found = {p: {"slow": [], "fixed": []} for p, win in self.wins.items() if win is not None and not LABELS[p].both}
        for (program, form), ended in self.ran.items():
            if program in found and form != "turns":
                found[program][of_form(form)].append(ended)
        return {p: runs for p, runs in found.items() if all(runs.values())}

    def play_until_sure(self):
        """Runs the programs whose promise cannot be judged yet twice more each, and again."""
        while doubtful := in_doubt(runs := self.promising()):
            so_far = {p: max(map(len, runs[p].values())) for p in doubtful}
            if not self.play([(p, f"{form} {n}") for p in doubtful for n in (so_far[p] + 1, so_far[p] + 2) for form in ("slow", "fixed")]):
                return


def run(plan, only=None):
    programs = [p for p in chosen(only) if not (plan.dry and LABELS[p].other)]
    wanted = [p for p in programs if LABELS[p].native]
    built = native.built(plan, *wanted) if wanted else {}
    lacking = [p for p in wanted if p not in built]  # its row says why
    here = max(len(machine.gpus(plan)), 1)
    for program in (p for p in programs if LABELS[p].gpus > here and not plan.dry):
        lacking.append(program)
        plan.row(NAME, program, NOT_RUN, f"needs {LABELS[program].gpus} GPUs, {here} here")
    archive = Archive(plan, f"causes-{'-'.join(only) if only and len(only) < 3 else 'some' if only else 'all'}.tar.gz")
    runs, offs, in_turns = Runs(plan, built, archive), {}, []
    matrix = runs.matrix
    matrix.missing += lacking
    try:
        turns = bool(only) and TURNS in only
        keys = [(p, form) for p in programs if p not in lacking for form in forms_of(LABELS[p], turns)]
        together = runs.play([key for key in keys if not LABELS[key[0]].alone])
        if all([runs.play([key]) for key in keys if LABELS[key[0]].alone]) and together:
            runs.play_until_sure()
        for program, of in runs.promising().items():
            archive.tell_runs(program, of)
            offs[program] = judge_promise(plan, program, of["slow"], of["fixed"], *([OF_KERNELS] if program in GPU_BOUND else []))
            in_turns.append(judge_turns(plan, program, of["slow"][0], runs.ran.get((program, "turns"))))
    finally:
        archive.close()
        plan.detail(NAME, "confusion matrix", matrix.as_detail())
        if not plan.dry:
            judge_promises(plan, {p: off for p, off in offs.items() if p not in GPU_BOUND})
            judge_promises(plan, {p: off for p, off in offs.items() if p in GPU_BOUND}, OF_KERNELS, "promises of causes of kernels")
            told = [off for off in in_turns if off is not None]
            if told:
                plan.row(NAME, "promises in turns, unrecorded", INFO, f"{sum(abs(o) <= PROMISE_OFF for o in told)} of {len(told)} within {PROMISE_OFF:.0%}, "
                         f"{sum(o > PROMISE_OVER for o in told)} above +{PROMISE_OVER:.0%}; from {min(told):+.0%} to {max(told):+.0%}")
            judge_models(plan, runs.ran)
            plan.row(NAME, "points lost", FAIL if matrix.points else NOT_RUN if matrix.missing or matrix.unproven else PASS,
                     f"{matrix.points}: {len(matrix.right)} right, {len(matrix.wrong)} wrong, {len(matrix.false)} falsely accused; "
                     f"{len(matrix.unproven)} not proven, {len(matrix.missing)} not run", "0, all judged")
            plan.closing.append(matrix.text())
