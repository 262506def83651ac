"""The pages need the configuration that is in use when a request comes, and not the one that they were made with."""

from gateway.testing.local_gateway import LocalGateway


async def test_pages_look_up_the_configuration_in_use() -> None:
    async with LocalGateway({"upstreams": [], "store": "sqlite:///:memory:"}) as made:
        needs = made.gateway._built.pages._needs
        before, current = needs.get_settings(), needs.current()
        await made.gateway.reload()
        assert needs.current() is not current and needs.get_settings() is not before
        assert needs.build_requests().admit == needs.admit
