"""The Chinese texts of the pages of workflows, prompts, memories and remembered decisions."""

from collections.abc import Mapping
from typing import Final

LIBRARY: Final[Mapping[str, str]] = {
    # Workflows.
    "Workflows": "工作流",
    "Workflow": "工作流",
    "Fixed steps with a form. Calls that need a person wait in the inbox.": (
        "步骤固定，用表单启动。需要人工批准的调用会在待办中等待。"
    ),
    "Categories": "类别",
    "All": "全部",
    "There is no workflow here. Each file in the folder of workflows is one; the configuration names the folder under "
    "'workflows'.": "这里没有工作流。工作流文件夹中的每个文件就是一个工作流；文件夹由配置中的 'workflows' 指定。",
    "Start": "启动",
    "(no parameters)": "（无参数）",
    "Conversation and model": "对话与模型",
    "Conversation": "对话",
    "An id. Approvals that are remembered for this conversation hold for the run.": (
        "填写编号。为此对话记住的批准对这次运行有效。"
    ),
    "Model": "模型",
    "For the steps that call a model; empty: the one of the gateway.": "用于调用模型的步骤；留空则由网关决定。",
    "Start the run": "开始运行",
    "Steps": "步骤",
    "calls the tool": "调用工具",
    "calls the model": "调用模型",
    "writes a text": "生成文本",
    "Last runs": "最近的运行",
    "Begun": "开始时间",
    "State": "状态",
    "Run": "运行",
    "Key": "密钥",
    "Duration": "时长",
    "All runs of this workflow": "此工作流的全部运行",
    "Nobody has started it yet, or its runs are deleted.": "尚未启动过，或其运行已被删除。",
    # Prompts.
    "Prompts": "提示词",
    "Prompt": "提示词",
    "System prompts, which a request names or the configuration chooses.": "系统提示词，由请求指定或由配置选定。",
    "Id": "编号",
    "Source": "来源",
    "configured": "配置",
    "stored": "已保存",
    "Version": "版本",
    "Characters": "字符数",
    "Changed": "修改时间",
    "There is no prompt here.": "这里没有提示词。",
    "New prompt": "新建提示词",
    "Requests name the prompt by it.": "请求用它来指定提示词。",
    "Text": "文本",
    "As JSON: the text has characters that do not show, or that a browser would change.": (
        "以 JSON 编辑：文本中有不可见的字符，或浏览器会改变的字符。"
    ),
    "Store": "保存",
    "Enter an id.": "请填写编号。",
    "There is a prompt with this id already: open it in the list, or enter another id.": (
        "已有使用此编号的提示词：请在列表中打开它，或填写另一个编号。"
    ),
    "Somebody has changed this prompt since you opened it. Compare, then save again.": (
        "您打开此提示词之后，有人修改了它。请先比较，再重新保存。"
    ),
    "This prompt is part of the configuration: change it under 'prompts' there, for all tenants, and reload. Or store "
    "one with another id.": (
        "此提示词属于配置：请在配置的 'prompts' 中修改（对所有租户生效）并重新加载，或用另一个编号保存。"
    ),
    "As the model gets it": "模型收到的文本",
    "Edit": "编辑",
    "Save": "保存",
    "Delete": "删除",
    "Requests that name this prompt will fail. Its text cannot be brought back.": (
        "指定此提示词的请求将会失败。其文本无法恢复。"
    ),
    "Delete this prompt": "删除此提示词",
    "Enhanced prompt": "增强后的提示词",
    "{0}, as the model gets it": "{0}：模型收到的文本",
    "Tools left out": "未列入的工具",
    "none": "无",
    "The prompt has no room for these tools: raise 'max_tokens' of the stage prompt_enhancer to have all of them.": (
        "提示词中容不下这些工具：提高阶段 prompt_enhancer 的 'max_tokens' 即可全部列入。"
    ),
    # Memories.
    "Memories": "记忆",
    "What the gateway stores about end users, and gives the model in later conversations.": (
        "网关保存的关于最终用户的内容，会在以后的对话中提供给模型。"
    ),
    "Of the end user": "最终用户",
    "or of the key": "或密钥",
    "Show": "显示",
    "Of the end user {0}": "最终用户 {0} 的记忆",
    "Of requests with the key {0} that name no end user": "使用密钥 {0} 且未指明最终用户的请求的记忆",
    "Of requests that name no end user": "未指明最终用户的请求的记忆",
    "Delete all": "全部删除",
    "only in the conversation": "仅限对话",
    "in all conversations": "所有对话",
    "No memories.": "没有记忆。",
    "Delete all memories?": "删除全部记忆？",
    "Delete all memories": "删除全部记忆",
    "All of them are deleted, in all conversations. They cannot be brought back.": (
        "将删除所有对话中的全部记忆，且无法恢复。"
    ),
    "Back": "返回",
    # Remembered decisions.
    "Remembered": "已记住",
    "Decisions that hold for later calls.": "对以后的调用仍然有效的决定。",
    "Back to the beginning": "回到开头",
    "Calls that run without being asked again": "不再询问、直接执行的调用",
    "Call": "调用",
    "Holds for": "适用于",
    "Approved by": "批准者",
    "Until": "有效期至",
    "conversation": "对话",
    "run": "运行",
    "key": "密钥",
    "end of the run": "运行结束",
    "Only the same call with the same arguments runs. The SHA-256 is that of its approval.": (
        "只有参数相同的同一调用会直接执行。SHA-256 与其批准请求的相同。"
    ),
    "None. Whoever approves a call can have it remembered for the run or the conversation.": (
        "没有。批准调用时可以选择在本次运行或本对话中记住它。"
    ),
    "Conversations that ask before each call": "每次调用前都询问的对话",
    "Since": "开始于",
    "None. A user who writes in a chat that each call shall ask appears here.": (
        "没有。用户在聊天中要求每次调用前先询问时，会出现在这里。"
    ),
    "Revoke": "撤销",
    "Revoked. Calls of the conversation ask only where the gate does.": (
        "已撤销。该对话中的调用只在安全门要求时才会询问。"
    ),
    "Further ones": "更多",
    "choose one of the options": "请从选项中选择",
    "the form lacks this field: load its page again": "表单缺少此字段：请重新加载页面",
    "required": "必填",
    "As JSON.": "以 JSON 填写。",
}
