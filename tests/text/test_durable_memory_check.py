"""What is kept for good is about the user or their wishes in general; instructions about the task at hand are not."""

import pytest

from gateway.text.memory_requests import find_memory_request
from gateway.text.phrases import Spans, fold
from tests.measuring import Effort

NOTHING = Spans(())


def kept(text: str) -> bool:
    request = find_memory_request(fold(text).text, shown=NOTHING)
    return request is not None and request.action == "remember"


@pytest.mark.parametrize(
    "text",
    [
        "Remember that I live in Berlin.",
        "remember my birthday is May 5th",
        "Please remember this: my daughter is called Ida",
        "remember that Rex is a beagle",
        "Remember I'm vegetarian",
        "remember that I prefer short answers",
        "remember that you should call me Ann",
        "remember to call me Ann",
        "remember to answer me in German",
        "Remember to always use metric units",
        "from now on, remember: I use tabs in Python",
        "Keep in mind that I'm colour-blind.",
        "don't forget my wife is allergic to nuts",
        "make a note of my new address: Main St. 5",
        "remember that I live here in Paris",
        "remember that the code to my door is 1234",
        "Fix this file. And remember that I am left-handed.",
        "记住我住在柏林",
        "记住：我的生日是五月五日",
        "请记住这个：我女儿叫小爱",
        "记住以后都用中文回答",
        "记得我喜欢喝茶",
        "记得叫我小明",
        "别忘了我对花生过敏",
        "记一下，周五开会",
        "记住，我每次都要简短的回答",
        "记住去年我搬到了上海",
        "记住用户名是 bob",
    ],
)
def test_lasting_facts_and_wishes_are_kept_in_memory(text: str) -> None:
    """Facts about somebody, and wishes that hold from now on."""
    assert kept(text)


@pytest.mark.parametrize(
    "text",
    [
        "Remember to use tabs in this file",
        "remember to use tabs",
        "Refactor it, and remember to keep the tests green.",
        "remember that this function must return None",
        "Remember that this project uses PostgreSQL.",
        "remember the order of the arguments",
        "remember that you must not change the schema",
        "Remember, you should return JSON only",
        "remember to always use tabs in this file",
        "Remember: always add types in the code below",
        "keep in mind that the input may be empty",
        "Don't forget to handle errors",
        "don't forget the semicolon",
        "bear in mind the deadline when you write it",
        "make a note of the total",
        "remember to buy milk",
        "remember to remind me tomorrow",
        "Remember what we discussed",
        "never forget to close the file",
        "remember that in your next answer I want a table",
        "Remember to use my style in this document",
        "记住在这个文件里用制表符",
        "记住用制表符",
        "记得用制表符",
        "记得写测试",
        "别忘了处理错误",
        "不要忘记在代码里加注释",
        "记住这个函数必须返回 None",
        "记住本项目使用 PostgreSQL",
        "记住这次不要改测试",
        "记得提醒我买牛奶",
        "记得把我的名字写在这封邮件里",
        "记住以后在这个文件里都用空格",
        "记得帮我检查拼写",
    ],
)
def test_an_instruction_about_the_task_is_not_kept(text: str) -> None:
    """The model has it in the conversation; in the next one it would be wrong."""
    assert not kept(text)


@pytest.mark.parametrize("piece", ["the a ", "to ", "when you ", "这", "remember ", "记得我", "in your next "])
def test_hostile_text_takes_no_noticeable_time(piece: str) -> None:
    """Linear, whatever repeats."""
    effort = Effort()
    kept("remember " + piece * 5000)
    assert effort.cpu_s < 0.5
