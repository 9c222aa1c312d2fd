# The image from which an init container copies isogate-runner into each pod: it is static, and needs nothing else.
#   docker build -f deploy/k8s/runner.Dockerfile -t registry.example/isogate-runner:1 build/release/bin
FROM scratch
COPY --chmod=0555 isogate-runner /isogate-runner
USER 65532:65532
ENTRYPOINT ["/isogate-runner"]
