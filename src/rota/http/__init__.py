"""HTTP server: it binds sockets, decodes requests, calls endpoints and renders responses. It knows no package."""
