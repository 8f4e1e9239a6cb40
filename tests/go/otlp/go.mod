module kfm.tests/otlp

go 1.26.0

require (
	go.opentelemetry.io/proto/otlp v1.11.0
	google.golang.org/protobuf v1.36.12
)
