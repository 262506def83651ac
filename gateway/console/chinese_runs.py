"""The texts of the pages of runs in Chinese, by the English ones."""

from collections.abc import Mapping
from typing import Final

RUNS: Final[Mapping[str, str]] = {
    # The list.
    "Runs": "运行",
    "Workflows, and chats that called a tool or asked to; newest first.": (
        "工作流，以及调用过或请求调用工具的对话；最新的在前。"
    ),
    "Narrow the list": "筛选列表",
    "State": "状态",
    "all": "全部",
    "Kind": "类型",
    "Caller": "调用方",
    "Workflow": "工作流",
    "Conversation": "会话",
    "Begun since (UTC)": "开始不早于（UTC）",
    "Begun until (UTC)": "开始不晚于（UTC）",
    "Show": "显示",
    "Show all": "显示全部",
    "Run": "运行",
    "Begun": "开始时间",
    "Took": "用时",
    "Pending": "待批准",
    "chat": "对话",
    "workflow": "工作流",
    "None of the runs that were looked at fits. There are older ones.": "已查看的运行都不符合条件，还有更早的运行。",
    "There is no such run.": "没有这样的运行。",
    "Nothing has run yet. A run stands here once a model or a workflow calls a tool.": (
        "还没有运行。模型或工作流调用工具后，运行会显示在这里。"
    ),
    "Ask a model in the playground": "在试验场向模型提问",
    "Start a workflow": "启动工作流",
    "{0} is not a time: write it like 2026-01-31T08:00.": "{0} 不是时间：请按 2026-01-31T08:00 的格式填写。",
    # States of runs, steps and approvals.
    "running": "运行中",
    "awaiting_approval": "等待批准",
    "awaiting_client": "等待客户端",
    "unknown": "结果未知",
    "completed": "已完成",
    "rejected": "已拒绝",
    "expired": "已过期",
    "failed": "失败",
    "interrupted": "已中断",
    "cancelled": "已取消",
    "planned": "已计划",
    "requested": "已请求批准",
    "started": "已开始",
    "finished": "已结束",
    "refused": "不允许",
    "pending": "待批准",
    "approved": "已批准",
    "executing": "执行中",
    "done": "已执行",
    # One run.
    "Run as JSON": "运行（JSON）",
    "Back to the run": "返回运行",
    "Took so far": "目前用时",
    "Tokens": "令牌",
    "{0} in, {1} out": "输入 {0}，输出 {1}",
    "{0} tokens in, {1} out": "输入 {0} 个令牌，输出 {1} 个",
    "Chain": "处理链",
    "Everything": "全部内容",
    "As JSON": "JSON 格式",
    "The run waits for a person: it goes on once each call below is decided.": (
        "运行正在等待人工决定：以下每个调用都有决定后，运行才会继续。"
    ),
    "A call was started, and its outcome is unknown: it may have run or not. "
    "Look first, then record the outcome below. Until then the run does not go on.": (
        "有一个调用已开始执行，但无法得知其结果：它可能已执行，也可能没有。"
        "请先核实，再在下面记录结果。在此之前运行不会继续。"
    ),
    "The run waits for its client, or for an upstream that had failed.": "运行正在等待其客户端，或等待曾经失败的上游。",
    "Resume": "继续运行",
    "Cancel the run": "取消运行",
    "No further call starts. What waits for a person is cancelled.": "不会再开始新的调用，等待批准的调用会被取消。",
    "Cancel the run now": "立即取消运行",
    "Timeline": "时间线",
    "Earlier steps": "更早的步骤",
    "Later steps": "更晚的步骤",
    "of {0} steps": "共 {0} 个步骤",
    "Nothing is stored of the steps of this run yet.": "尚未存储此运行的任何步骤。",
    "Model call": "模型调用",
    "round {0}": "第 {0} 轮",
    "step {0}": "步骤 {0}",
    "step {0}, round {1}": "步骤 {0}，第 {1} 轮",
    "Answer": "回答",
    "Result": "结果",
    "Result of step {0}": "步骤 {0} 的结果",
    "Runs without asking": "无需询问即执行",
    "A person decides": "由人工决定",
    "Not allowed": "不允许",
    "Not a valid call": "无效的调用",
    "{0} by {1} ({2})": "{1} {0}（{2}）",
    "rest": "REST",
    "websocket": "WebSocket",
    "cli": "命令行",
    "console": "控制台",
    "after a wait of {0}": "等待了 {0}",
    "Waits for a person, {0} so far;": "等待人工决定，已等待 {0}；",
    "Nobody decided: {0} after a wait of {1}": "无人作出决定：等待 {1} 后{0}",
    "The arguments were edited by the person who approved.": "批准人修改了参数。",
    "Read all arguments and decide": "查看全部参数并决定",
    "Strangers wrote this, or may have: calls after it are judged more strictly.": (
        "此内容由外部写入，或可能如此：此后的调用会受到更严格的判断。"
    ),
    "A worker reported after it had lost the run:": "一个工作进程在失去此运行后报告：",
    "The beginning: {0} of {1} lines; the whole has {2} characters.": (
        "此处为开头：{1} 行中的 {0} 行；全文共 {2} 个字符。"
    ),
    "The whole, as JSON": "全文（JSON）",
    # The picture.
    "Where the time went": "时间分布",
    "Where the time went: {0} rows over {1}. The table below has the same figures.": (
        "时间分布：{0} 行，共 {1}。下面的表格列有相同的数值。"
    ),
    "Model, round {0}": "模型，第 {0} 轮",
    "model call": "模型调用",
    "waiting for a person": "等待人工决定",
    "tool runs": "工具执行",
    "tool failed, or its outcome is unknown": "工具失败，或结果未知",
    "The same as a table": "以表格显示",
    "Row": "行",
    "What": "内容",
    # A call with an unknown outcome.
    "What became of this call?": "这个调用的结果如何？",
    "Result for the model, if you know it": "给模型的结果（如已知）",
    "Goes with an outcome of done or failed. A call that runs again has a result of its own.": (
        "用于“已执行”或“失败”。再次执行的调用会有自己的结果。"
    ),
    "No stranger wrote the result": "结果并非由外部写入",
    "It was done": "已执行",
    "Run it again": "再次执行",
    "It failed": "失败",
}
