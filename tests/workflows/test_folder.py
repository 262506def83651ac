"""The folder of workflows: what is read, and what each mistake is told as."""

from pathlib import Path

import pytest
from config.folder import Folder

from gateway.config import ConfigError
from gateway.config.schema.context import WorkflowsSettings as Section
from gateway.workflows.folder import MAX_FILE_BYTES, MAX_FILES, MAX_STEPS, FoundWorkflows, load_workflows

HEAD = "name: w\ndescription: x\n"
STEP = "steps: [{name: a, prompt: hi}]\n"
SHIPPED = Path(__file__).parents[2] / "workflows"


class Workflows:
    """A folder `workflows` that a configuration names, or the one that none does."""

    def __init__(self, folder: Folder, *, named: bool = True) -> None:
        self._folder = folder
        self._text = "workflows: {folder: workflows}" if named else ""

    def write(self, text: str | bytes, name: str = "w.yaml") -> Path:
        file = self._folder.write(f"workflows/{name}", text)
        file.chmod(0o644)
        file.parent.chmod(0o755)
        return file

    def load(self) -> FoundWorkflows:
        return load_workflows(self._folder.load(self._text).settings.workflows)

    def problems(self) -> list[str]:
        with pytest.raises(ConfigError) as error:
            self.load()
        place = str(self._folder.path / "workflows") + "/"
        return [str(problem).replace(place, "") for problem in error.value.problems]

    def problem(self, text: str | bytes) -> str:
        self.write(text)
        (only,) = self.problems()
        return only


@pytest.fixture
def workflows(folder: Folder) -> Workflows:
    return Workflows(folder)


def test_each_yaml_file_is_loaded_as_a_workflow(workflows: Workflows) -> None:
    """In the order of their names; other files, hidden ones and folders are none."""
    workflows.write("name: zeta\ndescription: z\n" + STEP, "a.yaml")
    workflows.write("name: alpha\ndescription: a\n" + STEP, "z.yml")
    workflows.write("{", ".hidden.yaml")
    workflows.write("{", "notes.md")
    workflows.write("{", "old/w.yaml")
    assert list(workflows.load().workflows) == ["alpha", "zeta"]


def test_missing_named_folder_is_a_problem(folder: Folder) -> None:
    """It has none where nobody named it; a name in the configuration is meant."""
    assert Workflows(folder, named=False).load() == FoundWorkflows({})
    (said,) = Workflows(folder).problems()
    assert said.startswith("configuration workflows.folder: cannot read the folder") and "create it" in said


@pytest.mark.parametrize("text", ["on: push\njobs: {}\n", "- a list\n", "", "\xff{", "name: w\n"])
def test_foreign_file_in_the_default_folder_is_skipped_with_warning(folder: Folder, text: str) -> None:
    """It is left out with a warning; a folder that is named holds workflows only."""
    theirs = Workflows(folder, named=False)
    theirs.write(HEAD + STEP, "ours.yaml")
    theirs.write(text.encode("latin-1"), "theirs.yaml")
    found = theirs.load()
    assert list(found.workflows) == ["w"]
    (warning,) = found.warnings
    assert "theirs.yaml: left out: it is no workflow" in warning
    assert Workflows(folder).problems()


@pytest.mark.parametrize("named", [True, False])
def test_unreadable_folder_is_a_problem(folder: Folder, named: bool) -> None:
    """That it is there says that it is meant."""
    folder.write("workflows", "a file")
    (said,) = Workflows(folder, named=named).problems()
    assert "Not a directory" in said


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_workflow_file_writable_by_others_is_refused(folder: Folder, workflows: Workflows, mode: int) -> None:
    """As with plugins. Where nobody named the folder it is left out, with a warning."""
    file = workflows.write(HEAD + STEP)
    workflows.write("name: safe\ndescription: x\n" + STEP, "safe.yaml")
    file.chmod(mode)
    (said,) = workflows.problems()
    assert "configuration workflows.folder: 'w.yaml' can be written by others than its owner" in said
    assert said.endswith("chmod go-w w.yaml")
    found = Workflows(folder, named=False).load()
    assert list(found.workflows) == ["safe"] and str(file) in found.warnings[0]


def test_a_link_out_of_the_folder_is_refused(folder: Folder, workflows: Workflows) -> None:
    """The owner of the other place could change it."""
    workflows.write(HEAD + STEP, "mine.yaml")
    target = folder.write("elsewhere.yaml", HEAD + STEP)
    target.with_name("workflows").joinpath("w.yaml").symlink_to(target)
    (said,) = workflows.problems()
    assert "leads out of" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "w.yaml: expected a workflow"),
        ("- 1", "w.yaml:1:1: expected a workflow (lines of key: value, beginning with name:)"),
        (b"\xff", "w.yaml: not UTF-8 at byte 0: save it as UTF-8"),
        ("a" * (MAX_FILE_BYTES + 1), f"w.yaml: the file is larger than {MAX_FILE_BYTES} bytes"),
        ("name: [", "w.yaml:2:1: not valid YAML"),
        (HEAD + "name: v\n" + STEP, "w.yaml:3:1 name: this key is already at 1:1"),
        (HEAD + STEP + "stepz: 1\n", "w.yaml:4:1 stepz: unknown key 'stepz'; did you mean 'steps'?"),
        (HEAD + "category: !!python/name:os.system x\n" + STEP, "w.yaml:3:11 category: tags"),
        (HEAD, "w.yaml:1:1 steps: this key is required"),
        (HEAD + "steps: []", "w.yaml:3:8 steps: expected at least one step"),
        (HEAD + "steps:\n", "w.yaml:3:7 steps: expected a list, found nothing"),
        (HEAD + "steps: {a: 1}", "w.yaml:3:8 steps: expected a list, found a section"),
        (HEAD + "steps: [a]", "w.yaml:3:9 steps[0]: expected a section"),
        ("name: W\ndescription: x\n" + STEP, "w.yaml:1:7 name: expected 1 to 64 of a-z"),
        ("name: categories\ndescription: x\n" + STEP, "w.yaml:1:7 name: 'categories' is a page of its own"),
        (HEAD + "steps: [{name: a b, prompt: x}]", "w.yaml:3:16 steps[0].name: expected 1 to 64 of a-z"),
        (HEAD + "steps: [{name: a}]", "w.yaml:3:9 steps[0]: expected tool, model or prompt"),
        (HEAD + "steps: [{name: a, tool: t, model: m}]", "w.yaml:3:28 steps[0].model: tool and model are given"),
        (HEAD + "steps: [{name: a, model: m, with: {x: 1}}]", "w.yaml:3:29 steps[0].with: arguments go with a tool"),
        (HEAD + "steps: [{name: a, tool: t, wiht: {}}]", "steps[0].wiht: unknown key 'wiht'; did you mean 'with'?"),
        (
            HEAD + "steps: [{name: a, tool: t, with: {risk_level: low}}]",
            "w.yaml:3:35 steps[0].with.risk_level: is a model's word",
        ),
        (
            HEAD + "steps: [{name: a, prompt: x}, {name: a, prompt: y}]",
            "w.yaml:3:38 steps[1].name: the same name as at w.yaml:3:16: each is used once",
        ),
        (
            HEAD + "steps: [{name: a, prompt: '{{params.x}}'}]",
            "w.yaml:3:27 steps[0].prompt: {{params.x}}: there is no parameter of this name; declare it",
        ),
        (
            HEAD + "parameters: {text: {}}\nsteps: [{name: a, tool: t, with: {k: [1, '{{params.txt}}']}}]",
            "w.yaml:4:42 steps[0].with.k[1]: {{params.txt}}: there is no parameter of this name; did you mean 'text'?",
        ),
        (
            HEAD + "steps: [{name: a, prompt: '{{steps.b}}'}, {name: b, prompt: x}]",
            "w.yaml:3:27 steps[0].prompt: {{steps.b}}: a step sees the results of those before it",
        ),
        (HEAD + "steps: [{name: a, model: '{{steps.a}}'}]", "steps[0].model: {{steps.a}}: a step sees the results"),
        (
            HEAD + "steps: [{name: one, prompt: x}, {name: a, model: '{{steps.zzz}}'}]",
            "steps[1].model: {{steps.zzz}}: there is no step of this name; steps before this one: 'one'",
        ),
    ],
)
def test_workflow_errors_report_file_line_column_and_key(workflows: Workflows, text: str | bytes, said: str) -> None:
    """File, line, column, key and the next step."""
    assert said in workflows.problem(text)


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("{type: text}", "parameters.p.type: expected one of string, integer"),
        ("{type: integer, default: a}", "parameters.p.default: does not fit the type 'integer'"),
        ("{type: integer, default: 1.5}", "parameters.p.default: does not fit the type 'integer'"),
        ("{type: string, default: 1}", "parameters.p.default: does not fit the type 'string'"),
        ("{default: true}", "parameters.p.default: does not fit the type 'string'"),
        ("{type: array, default: {}}", "parameters.p.default: does not fit the type 'array'"),
        ("{type: boolean, default: 0}", "parameters.p.default: does not fit the type 'boolean'"),
        ("{enum: []}", "parameters.p.enum: expected at least one value"),
        ("{enum: [a, 1]}", "parameters.p.enum[1]: does not fit the type 'string'"),
        ("{enum: [a], default: b}", "parameters.p.default: is none of the values of enum"),
        ("{required: true, default: b}", "parameters.p.default: a parameter that is required needs no default"),
        ("{required: 3}", "parameters.p.required: expected true or false"),
        ("{requird: true}", "parameters.p.requird: unknown key 'requird'; did you mean 'required'?"),
        ("3", "parameters.p: expected a section"),
    ],
)
def test_workflow_parameter_with_inconsistent_default_or_choices_is_refused(
    workflows: Workflows, parameter: str, said: str
) -> None:
    """Type, default and choices."""
    assert said in workflows.problem(f"{HEAD}parameters: {{p: {parameter}}}\n{STEP}")


def test_valid_parameters_of_each_type_are_loaded(workflows: Workflows) -> None:
    """Of each type, with defaults that fit."""
    workflows.write(
        HEAD + "parameters: {s: {default: ''}, i: {type: integer, default: 3, enum: [3, 4]}, n: {type: number, "
        "default: 1}, b: {type: boolean, default: false}, a: {type: array, default: [1]}, "
        "o: {type: object, default: {k: [v]}}, none: {}}\n" + STEP
    )
    (workflow,) = workflows.load().workflows.values()
    defaults = {name: facts.get("default") for name, facts in workflow.build_schema()["properties"].items()}
    assert defaults == {"s": "", "i": 3, "n": 1, "b": False, "a": [1], "o": {"k": ["v"]}, "none": None}


def test_workflow_text_does_not_expand_variables_or_templates(workflows: Workflows) -> None:
    """Neither variables of the environment nor templates mean anything in it (T32)."""
    literal = "${HOME} $$ {{config.keys}} {% raw %} {0.__class__}"
    workflows.write(f"{HEAD}steps: [{{name: a, prompt: '{literal}'}}]")
    assert workflows.load().workflows["w"].steps[0].prompt == literal


def test_duplicate_workflow_name_reports_both_places(workflows: Workflows) -> None:
    """Both places are told."""
    workflows.write(HEAD + STEP, "a.yaml")
    workflows.write(HEAD + STEP, "b.yaml")
    (said,) = workflows.problems()
    assert said == "b.yaml:1:7 name: a.yaml:1:7 has this name as well: give one of the two another"


def test_problems_of_all_workflow_files_are_reported_together(workflows: Workflows) -> None:
    """In the order of the files."""
    workflows.write("name: W\n", "a.yaml")
    workflows.write(HEAD + "steps: []", "b.yaml")
    assert [said.partition(":")[0] for said in workflows.problems()] == ["a.yaml", "a.yaml", "a.yaml", "b.yaml"]


def test_workflow_step_and_file_counts_are_limited(workflows: Workflows) -> None:
    """Of steps, and of files."""
    steps = ", ".join(f"{{name: s{i}, prompt: x}}" for i in range(MAX_STEPS + 1))
    assert f"more than {MAX_STEPS} steps" in workflows.problem(f"{HEAD}steps: [{steps}]")
    for i in range(MAX_FILES + 1):
        workflows.write("- 1", f"w{i:04}.yaml")
    assert f"more than {MAX_FILES} files" in workflows.problems()[0]


def test_shipped_workflows_load_and_show_their_run_command() -> None:
    """Each begins with a comment that says how to start it."""
    found = load_workflows(Section.model_validate({"folder": str(SHIPPED)}))
    assert set(found.workflows) == {"first-approval", "summarise", "table-report"} and not found.warnings
    for name in found.workflows:
        assert f"gateway workflows run {name}" in (SHIPPED / f"{name}.yaml").read_text()
