"""The end of a conversation's approvals for each call: users revoke their request in the chat."""

from gateway.api.decisions import convert_store_errors
from gateway.approvals.texts import detect_language, format_ask_before_ended, format_ask_before_kept
from gateway.contracts.exchange import Exchange
from gateway.text.ask_before_phrases import UNASK_CHARS, is_ask_cancellation
from gateway.text.phrases import fold
from gateway.text.quotes import find_shown_text
from gateway.tools.grants import RememberedDecisions


async def cancel_ask(text: str, exchange: Exchange, remembered: RememberedDecisions) -> str:
    """End the approvals for each call if `text` requests it. Return the message for the user; "": no request.

    As on the other ways, this needs the scope `approve`. Raises GatewayError.
    """
    if exchange.conversation is None or len(text) > UNASK_CHARS:
        return ""
    folded = fold(text).text
    if not is_ask_cancellation(folded, shown=find_shown_text(folded)):
        return ""
    with convert_store_errors("what was taken back"):
        ask_id = await remembered.find_ask_id(exchange)
        if ask_id is None:
            return ""
        if "approve" not in exchange.caller.scopes:
            return format_ask_before_kept(ask_id, language=detect_language(text))
        await remembered.revoke_ask(ask_id, by=exchange.caller, via="chat")
    return format_ask_before_ended(language=detect_language(text))
