"""People who wanted to be asked before each call of a conversation, and take that back in it."""

from gateway.api.decisions import written
from gateway.approvals.texts import language_of, not_unasked_text, unasked_text
from gateway.contracts.exchange import Exchange
from gateway.text.phrases import fold
from gateway.text.quotes import shown_text
from gateway.text.unask import UNASK_CHARS, unasks
from gateway.tools.remembered import Remembered


async def unasked(text: str, exchange: Exchange, remembered: Remembered) -> str:
    """Takes it back if `text` says so, and returns what its user is told; "" where there is nothing to take back.

    As by the other ways it takes the scope `approve`. Raises GatewayError.
    """
    if exchange.conversation is None or len(text) > UNASK_CHARS:
        return ""
    folded = fold(text).text
    if not unasks(folded, shown=shown_text(folded)):
        return ""
    with written("what was taken back"):
        ask_id = await remembered.ask_of(exchange)
        if ask_id is None:
            return ""
        if "approve" not in exchange.caller.scopes:
            return not_unasked_text(ask_id, language=language_of(text))
        await remembered.revoke_ask(ask_id, by=exchange.caller, via="chat")
    return unasked_text(language=language_of(text))
