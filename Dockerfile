# `ridgepoint serve` in a container:
#   docker build -t ridgepoint .
#   docker run --rm -p 127.0.0.1:8080:8080 -e RIDGEPOINT_TOKEN="$(openssl rand -hex 16)" --read-only --cap-drop ALL ridgepoint
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release -p ridgepoint-cli

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin ridgepoint
COPY --from=build /src/target/release/ridgepoint /usr/local/bin/ridgepoint
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/ridgepoint/
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/ridgepoint"]
# The token is in RIDGEPOINT_TOKEN, or in a file that --token-file names; without one the server does not start. Clients that ask it by
# another name than localhost or an address need --allowed-host NAME.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
