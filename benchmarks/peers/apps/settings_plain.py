"""Django beside a peer that does not need it, for handlers that use the ORM."""


def added(installed: list[str]) -> dict[str, object]:
    return {"INSTALLED_APPS": installed}
