"""Sentences that announce a call as an example."""

import pytest

from gateway.agent.output.example_detection import announces_example


@pytest.mark.parametrize(
    "text",
    [
        *("Here is an example:", "For example, ", "Example:", "**Example 2:**\n", "## Example\n\n", "e.g. "),
        *("A call would look like this:\n", "It might look something like: ", "It looks like this:\n"),
        *("I did it. For instance:\n\n", "An example call to delete it:", "Here's a sample request:"),
        *("You would call it like this: ", "The call would be:", "Example of a call:", "One (hypothetical) call:"),
        *("Here is an example tool call for `write_file`:\n", "As an example, deleting it:\n> "),
        *(
            "例如：",
            "示例：\n",
            "这里是一个示例：",
            "比如这样：",
            "工具调用看起来像这样：",
            "以下是工具调用的范例。\n\n",
        ),
        *("例えば：", "たとえば、", "예를 들어:", "다음과 같이 보입니다:"),
        *("Zum Beispiel:", "Das sieht z. B. ", "Das würde so aussehen:", "Par exemple :", "Un exemple :\n"),
        *("Ejemplo:", "Por ejemplo: ", "Um exemplo:", "Ad esempio:", "Например:", "Вот пример:", "मसलन एक उदाहरण:"),
    ],
)
def test_example_announcements_are_detected(text: str) -> None:
    """In many languages, with any markup between it and the call."""
    assert announces_example(text)
    assert announces_example("I have read the file. " * 100 + text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "OK.", "I read the example file.\n", "Let me look at examples/config.yaml:\n", "I'll read example.txt: "),
        *("I should read this file: ", "Let me see what it looks like: ", "I'll run the example: "),
        *("That was an example. Now I do it for real:", "Let me read an example config first: "),
        *("I open an example.com page:", "Now I delete the samples:", "The file should be there; I look:"),
        *("我来读取示例文件：", "比例：", "Das sieht gut aus, ich lese: ", "An example.\n\nNow for real:\n"),
        "<think>for example a call would look like this:</think>\n",
    ],
)
def test_other_sentences_do_not_announce_an_example(text: str) -> None:
    """A file that is called an example, an earlier sentence, and thought."""
    assert not announces_example(text)
