"""The test whether a memory is to last: it is about people or their wishes in general, not about the task at hand.

"Remember that I live in Berlin" lasts. "Remember to use tabs in this file" is an instruction for the model, which has
it in the conversation anyway. Where it is open which of them it is, nothing is kept. The text is folded; every
expression is anchored or bounded, so the whole takes linear time.
"""

import re

_WORK = (
    r"(?:files?|functions?|class(?:es)?|methods?|modules?|packages?|scripts?|code(?:base)?|snippets?|repo(?:sitory)?"
    r"|projects?|branch|commits?|prs?|pull requests?|merge requests?|patch|diff|tests?|quer(?:y|ies)|tables?|columns?"
    r"|schema|database|tasks?|tickets?|issues?|bugs?|features?|steps?|exercises?|problems?|questions?|answers?|repl(?:y|ies)"
    r"|responses?|outputs?|inputs?|results?|requests?|messages?|e-?mails?|letters?|chat|conversation|thread|session"
    r"|discussion|documents?|docs?|pages?|articles?|essays?|papers?|reports?|texts?|paragraphs?|sentences?|sections?"
    r"|chapters?|lists?|summar(?:y|ies)|translations?|story|stories|poems?|drafts?|plans?|pictures?|images?|photos?|slides?"
    r"|presentation|spreadsheets?|sheets?|pdfs?|videos?|commands?|prompts?|instructions?|errors?|logs?|variables?"
    r"|parameters?|arguments?|constants?|loops?|endpoints?|apis?|components?|apps?|applications?|programs?|website|site"
    r"|game|assignment|homework|cases?|context|examples?|recipes?|rules?)"
)
#: With "the" alone these are of the task; "the code to my door" is not.
_PROGRAM = (
    r"(?:files?|functions?|class(?:es)?|methods?|modules?|scripts?|code(?:base)?(?! (?:to|for|of) (?:my|our))|snippets?"
    r"|repo(?:sitory)?|branch|commits?|pull requests?|patch|diff|tests?|query|schema|variables?|parameters?|arguments?"
    r"|outputs?|inputs?|tasks?|instructions?|formatting|return (?:type|value)s?)"
)
_TASK = re.compile(
    r"(?<![a-z0-9_])(?:"
    r"(?:this|these|that|those|the (?:current|above|below|following|attached|given|next|previous|last|same|existing))"
    rf"(?: [a-z0-9_.-]{{1,20}}){{0,2}}? {_WORK}"
    rf"|the(?: [a-z0-9_.-]{{1,20}})? {_PROGRAM}"
    r"|above|below|for now|right now|this time|next step|(?:in )?your (?:next |final )?(?:answer|reply|response|output)"
    r"|(?:when|before|after|while|until|once) (?:you|we)(?:'re| are)? (?:writ|edit|chang|refactor|answer|fix|implement"
    r"|finish|do|done|cod|test|generat|creat|add|remov|updat|run|summari|translat|read|start|begin|commit|deploy|merge"
    r"|push)[a-z]{0,8}"
    r"|as you (?:go|work|write)"
    r"|(?<!live )(?<!work )(?<!stay )(?<!study )(?<!from )here"
    r")(?![a-z0-9_])"
    r"|(?:[这這那该該本此]|当前|當前|上述|以下|下面|上面|刚才|剛才)(?:一?[个個段份篇条條张張次封处處行项項首道]|些)?的?[^,.!?。、\n]{0,4}?"
    r"(?:文件|檔案|函数|函數|代码|代碼|程序|程式|脚本|模块|類|类|方法|仓库|項目|项目|分支|提交|测试|測試|任务|任務|作业|作業|问题|問題"
    r"|回答|答案|回复|邮件|文章|文档|文檔|段落|句子|文本|内容|表格?|查询|图片|页面|对话|對話|会话|聊天|步骤|需求|接口|变量|参数|例子|翻译"
    r"|报告|总结|總結|题)"
    r"|这次|這次|本次|这里|這裡|这儿|此处|接下来|下一步|待会|稍后|等一下|[写改做]完|完成后|完成以后"
)
_GENERAL = re.compile(
    r"(?<![a-z0-9_])(?:always|never|from now on|in (?:the )?future|in general|generally|every ?time|whenever|each time"
    r"|any ?time|in all (?:my|our|your|cases)|by default|as a rule|usually|forever|permanently|for good)(?![a-z0-9_])"
    r"|总是|總是|一直|(?<!之)以后|(?<!之)以後|今后|今後|永远|永遠|每次|每当|每當|每回|从现在|從現在|从今|從今|凡是|一律|默认|默認"
    r"|平时|平時|通常|任何时候|任何時候"
)
#: What the model is to do, other than how it is to speak with this person.
_INSTRUCTION = re.compile(
    r"(?:(?:also|please|first|then) )?(?:not )?to (?!(?:call|address|greet) (?:me|us)(?! (?:back|at|when|on|in|to))"
    r"|(?:answer|reply|respond|speak|talk|write)(?: to| with)? (?:me|us) in)"
    r"|(?:that )?(?:you|we)(?:'re)? (?:must|should|shall|have to|has to|need to|needn't|are|can't|cannot|can"
    r"|may|mustn't|shouldn't|will|won't|ought)(?![a-z0-9_])"
    r"(?! (?:call|address|greet|answer|speak|talk)(?: to)? (?:me|us))"
    r"|(?:do not|don't|dont) |(?:what|when|how|where|why|if|whether|which)(?![a-z0-9_])"
    r"|要|得|必须|必須|应该|應該|应当|不要|别(?![名人])|別(?![名人])|不能|不可|务必|務必|用(?!户)|使用|把|将|將|在|给|給|帮|幫|先(?!生)|写|寫|改"
    r"|加(?!拿大|州)|添加|检查|檢查|运行|運行|调用|調用|返回|保留|删|刪|处理|處理|测试|測試|提醒|通知|告诉|告訴|发(?!票)|發(?!票)|买|買|去(?!年)"
)
_PERSON = re.compile(
    r"(?<![a-z0-9_])(?:i|i'm|im|i've|i'd|i'll|me|my|mine|myself|we|we're|we've|our|ours|us)(?![a-z0-9_])"
    r"|\A\s{0,3}(?:我|咱|俺|本人)|(?:叫|称呼|稱呼|喊|管)我"
)


def is_lasting(said: str, *, explicit: bool) -> bool:
    """Return whether `said` is to be kept; `explicit`: with "remember that", "remember this:" or their like.

    An empty text is kept, too: the caller then requests the missing text.
    """
    said = said.strip()
    if not said:
        return True
    if _TASK.search(said):
        return False
    if _GENERAL.search(said):
        return True
    return not _INSTRUCTION.match(said) and (explicit or _PERSON.search(said) is not None)
