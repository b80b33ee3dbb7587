# Build: the locked dependencies and the package, in a virtual environment.
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY server server
RUN python -m venv /opt/chunkstore \
 && /opt/chunkstore/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/chunkstore/bin/pip install --no-cache-dir --no-deps .

# Run: no compiler, no sources, no root. Set CHUNKSTORE_DSN to use a PostgreSQL of your own; without it a private one
# keeps its data in /data.
FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /data chunkstore
COPY --from=build /opt/chunkstore /opt/chunkstore
USER chunkstore
WORKDIR /data
VOLUME /data
ENV PATH=/opt/chunkstore/bin:$PATH CHUNKSTORE_ADDRESS=127.0.0.1:50051 CHUNKSTORE_DATA_DIR=/data/postgres
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s CMD ["chunkstore", "health"]
# Until authentication exists the server binds loopback addresses alone: share its network namespace (a sidecar in the
# same pod, or --network container:NAME or host).
ENTRYPOINT ["chunkstore", "serve"]
