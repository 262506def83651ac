"""The end of asking before each call of a conversation: users take it back in the chat."""

from gateway.api.decisions import written
from gateway.approvals.texts import ask_before_ended_text, language_of, not_unasked_text
from gateway.contracts.exchange import Exchange
from gateway.text.phrases import fold
from gateway.text.quotes import shown_text
from gateway.text.unask import UNASK_CHARS, cancels_ask_before
from gateway.tools.remembered import Remembered


async def cancel_ask_before(text: str, exchange: Exchange, remembered: Remembered) -> str:
    """Revoke the asking if `text` requests it. Return the message for the user, or "" if nothing was requested.

    As on the other ways, this needs the scope `approve`. Raises GatewayError.
    """
    if exchange.conversation is None or len(text) > UNASK_CHARS:
        return ""
    folded = fold(text).text
    if not cancels_ask_before(folded, shown=shown_text(folded)):
        return ""
    with written("what was taken back"):
        ask_id = await remembered.ask_of(exchange)
        if ask_id is None:
            return ""
        if "approve" not in exchange.caller.scopes:
            return not_unasked_text(ask_id, language=language_of(text))
        await remembered.revoke_ask(ask_id, by=exchange.caller, via="chat")
    return ask_before_ended_text(language=language_of(text))
