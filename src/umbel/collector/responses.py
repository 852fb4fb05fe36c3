"""HTTP responses of a collector."""

from __future__ import annotations

REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
_ANY = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
_CLOSE = b"connection: close\r\n"


class HttpResponse:
    """A response.

    Args:
        status: its status.
        body: its bytes.
        headers: further header lines, each with its line break.
        media: its content type.
        ends: True if the connection is closed after it.
    """

    __slots__ = ("body", "ends", "headers", "media", "status")

    def __init__(
        self, status: int, body: bytes, headers: bytes = b"", media: bytes = b"application/json", *, ends: bool = False
    ) -> None:
        self.status, self.body, self.headers, self.media, self.ends = status, body, headers, media, ends

    def packed(self, *, has_body: bool = True) -> bytes:
        """Return its bytes; the answer to HEAD has no body."""
        headers, body = self.headers + _CLOSE if self.ends else self.headers, self.body if has_body else b""
        if self.status == 200 and self.media == b"application/json":
            return _OK % (len(self.body), headers, body)
        return _ANY % (self.status, REASONS[self.status], self.media, len(self.body), headers, body)
