"""What the validators of a tool's own pydantic model find, which no JSON Schema can say."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pydantic import BaseModel
from pydantic import ValidationError as ModelValidationError

from langchain_agentrag.guard.problems import Problem, placed


def validators_of(
    model: object, visible: Collection[str]
) -> Callable[[dict[str, object]], list[Problem]] | None:
    """A check of arguments by a pydantic model, or None when it is none.

    What is refused before the call cannot leave it half done.

    Args:
        model: The model of all arguments.
        visible: Those the caller gives; what the model says about others, which are added later, does not count.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None

    def check(arguments: dict[str, object]) -> list[Problem]:
        try:
            model.model_validate(arguments)
        except ModelValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            hidden = any(part["loc"] and part["loc"][0] not in visible for part in found)
            return [
                Problem(
                    place := placed(part["loc"]), part["type"], f"{place}: {part['msg']}".removeprefix(": ")
                )
                for part in found
                if (part["loc"][0] in visible if part["loc"] else not hidden)
            ]
        return []

    return check
