"""What schemathesis cannot know: 501 and 503 are typed refusals here, any other 5xx is a defect; how a tar archive is sent."""

import schemathesis


@schemathesis.check
def no_defect(ctx, response, case):
    if response.status_code >= 500 and response.status_code not in (501, 503, 507):
        raise AssertionError(f"{response.status_code}: {response.text[:500]}")


@schemathesis.serializer("application/x-tar")
def bytes_of(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()
