"""The words of tools: which tools a query of a person's own words finds first."""

from pathlib import Path
from typing import Final

import pytest

from gateway.aio.cooperative import run_at_once
from gateway.mcp_server.finding.word_index import DESCRIPTION_CHARS, WordIndex, index_words, select_wanted_words
from gateway.mcp_server.listing import ToolOffer

#: Tools as public MCP servers name them, each with a description in our own words.
_LISTED: Final = Path(__file__).with_name("public_tools.tsv")
#: Queries, and the tools that are right for each (`|` between them).
USUAL: Final = {
    "what will the weather be like in Berlin tomorrow": "weather.get-forecast",
    "send an email to my boss": "gmail.send_email",
    "open a pull request": "github.create_pull_request",
    "how do I get from the station to the airport by bus, directions please": "google_maps.maps_directions",
    "take a screenshot of the page": "playwright.browser_take_screenshot",
    "list all containers running on this machine": "docker.list_containers",
    "logs of a pod": "kubernetes.pods_log",
    "convert 100 euros to dollars, currency": "currency.convert_currency",
    "refund a customer's payment": "stripe.create_refund",
    "create an event in my calendar with guests": "calendar.create-event",
    "post a message to the #general channel on slack": "slack.slack_post_message",
    "commit the staged changes": "git.git_commit",
    "read a file": "filesystem.read_text_file",
    "rename a file": "filesystem.move_file",
    "search scientific papers": "arxiv.search_papers",
    "what is the price of bitcoin and other coins": "coingecko.get_coin_price",
    "translate this text into French": "deepl.translate-text",
    "run a SQL query on postgres": "postgres.query",
    "show me the slowest statements of the database": "postgres.get_top_queries",
    "who is on call right now": "grafana.get_current_oncall_users",
    "make a pivot table in excel": "excel.create_pivot_table",
    "transcript of a youtube video": "youtube.get_transcript",
    "search hotel in Rome": "booking.search_hotels",
    "book a table at a restaurant": "opentable.make_reservation",
    "play some music on spotify": "spotify.playMusic",
    "get the coordinates of an address": "google_maps.maps_geocode",
    "create a new branch": "git.git_create_branch",
    "scan the code for security problems": "semgrep.semgrep_scan",
    "天气": "amap.maps_weather",
    "明天上海天气怎么样": "amap.maps_weather",
    "我想查一下从北京到上海的火车票": "railway.get-tickets",
    "帮我规划一条开车路线": "amap.maps_direction_driving",
    "附近有什么好吃的餐厅": "amap.maps_around_search|dianping.search_restaurants",
    "查快递到哪里了": "kuaidi.query_express",
    "给群聊发送一条消息": "feishu.im_v1_message_create",
    "申请退款": "alipay.refund-payment",
    "把这段文字转成语音": "minimax.text_to_audio",
    "查询股票行情": "stockcn.get_daily_prices",
    "员工考勤记录": "dingtalk.query_attendance",
    "今天的农历是多少": "lunar.get_chinese_calendar",
}
FURTHER: Final = {
    "show the commit history": "git.git_log",
    "what changed in the working directory": "git.git_diff_unstaged|git.git_status",
    "make a new folder": "filesystem.create_directory",
    "find files by name": "filesystem.search_files",
    "delete an email": "gmail.delete_email",
    "upload a file in the browser": "playwright.browser_file_upload",
    "click a button on a website": "playwright.browser_click",
    "search the web": "brave.brave_web_search",
    "latest news about AI": "brave.brave_news_search",
    "what time is it in Tokyo": "time.get_current_time",
    "edit lines in a text file": "filesystem.edit_file",
    "assign an issue on github": "github.update_issue",
    "approve a pull request": "github.create_pull_request_review",
    "scale a deployment to 3 replicas": "kubernetes.resources_scale",
    "how much did we spend on AWS last month": "aws.get_cost_and_usage",
    "run python code": "python.run_python_code",
    "generate a picture of a cat": "replicate.generate_image",
    "send sms": "twilio.send_sms",
    "find cheap flights to New York": "flights.search_flights",
    "draw a pie chart": "antv.generate_pie_chart",
    "turn on the lights in the living room": "homeassistant.control",
    "merge pdf files": "pdf.merge_pdfs",
    "documentation for the react library": "context7.get-library-docs",
    "log time spent on a jira ticket": "jira.jira_add_worklog",
    "is anyone free on Friday afternoon": "calendar.get-freebusy",
    "what's my stripe balance": "stripe.retrieve_balance",
    "make a support ticket": "zendesk.create_ticket",
    "calculate 17 * 23": "calculator.calculate",
    "list the tables in the sqlite database": "sqlite.list_tables",
    "clear the cdn cache": "cloudflare.cache_purge",
    "add a row to airtable": "airtable.create_record",
    "compress or resize an image": "imagesorcery.resize",
    "查航班": "flightcn.searchFlightsByDepArr",
    "查一下我的订单付款了没有": "alipay.query-payment",
    "创建日程": "feishu.calendar_event_create",
    "地铁怎么坐": "amap.maps_direction_transit_integrated",
    "生成一段视频": "minimax.generate_video",
    "翻译成英文": "translatecn.translate",
    "寄快递要多少钱": "express.estimate_price",
    "基金净值": "stockcn.get_fund_nav",
}


def offer(name: str, description: str) -> ToolOffer:
    definition = {"description": description, "inputSchema": {"type": "object"}}
    return ToolOffer(name, name.replace(".", "__"), name.partition(".")[2], name.partition(".")[0], {"": definition})


def index_of(*offers: ToolOffer) -> WordIndex:
    return run_at_once(index_words(offers))


def found(index: WordIndex, query: str) -> list[str]:
    return [one.inside for one in index.find_offers(select_wanted_words(query))]


@pytest.mark.parametrize("queries", [USUAL, FURTHER])
def test_search_ranks_the_right_tool_first_for_most_queries(queries: dict[str, str]) -> None:
    """For 85 of 100 queries in English and Chinese; for 95 it is among the first five."""
    offers = [offer(*line.split("\t")) for line in _LISTED.read_text("utf-8").splitlines()]
    assert len(offers) >= 300 and len(queries) == 40
    index = index_of(*offers)
    first, among_five, missed = 0, 0, []
    for query, right in queries.items():
        names = found(index, query)[:5]
        first += names[:1] != [] and names[0] in right.split("|")
        among_five += not set(right.split("|")).isdisjoint(names)
        missed += [] if names[:1] != [] and names[0] in right.split("|") else [(query, names)]
    assert first >= 0.85 * len(queries) and among_five >= 0.95 * len(queries), missed


def test_word_index_matches_case_accent_and_prefix_variants() -> None:
    """As humps, with accents, in capitals, in another number, and by their beginnings."""
    index = index_of(offer("s.searchPlaylists", "Música."), offer("s.HTTP_get", "x"), offer("s.noop", "y"))
    for query, expected in (
        ("playlist", ["s.searchPlaylists"]),
        ("PLAYLISTS", ["s.searchPlaylists"]),
        ("playl", ["s.searchPlaylists"]),
        ("musica", ["s.searchPlaylists"]),
        ("find", ["s.searchPlaylists"]),
        ("http", ["s.HTTP_get"]),
        ("noo", []),
        ("", []),
    ):
        assert found(index, query) == expected, query


def test_word_index_matches_words_without_spaces() -> None:
    """In Chinese, Japanese and Korean, also beside Latin letters, and a lone character."""
    index = index_of(
        offer("s.a", "查询某个城市的天气预报"), offer("s.b", "東京の天気をしらべる"), offer("s.c", "서울의 날씨")
    )
    for query, expected in (("天气", "s.a"), ("天気", "s.b"), ("날씨", "s.c"), ("iOS上的预报", "s.a"), ("城", "s.a")):
        assert found(index, query) == [expected], query


def test_query_text_is_not_parsed_as_index_operators() -> None:
    """Its signs and words are not read as operators; a query of fillers only looks for these."""
    index = index_of(offer("s.not_near", "Is OR and AND."), offer("s.b", "quote"))
    assert found(index, 'near" OR "quote*') == ["s.not_near", "s.b"]
    assert found(index, "NEAR(zzz, 2) description:quote ^x -(") == ["s.not_near", "s.b"]
    assert found(index, "is and") == ["s.not_near"]


def test_word_index_ignores_the_end_of_a_long_description() -> None:
    """A very long description does not fit by its end."""
    index = index_of(offer("s.a", "x " * DESCRIPTION_CHARS + "weather"), offer("s.b", "Tells the weather."))
    assert found(index, "weather") == ["s.b"]
