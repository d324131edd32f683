module bquic

go 1.26.0

require (
	github.com/mdlayher/netlink v1.11.2
	github.com/quic-go/qpack v0.6.0
	github.com/quic-go/quic-go v0.65.0
	golang.org/x/crypto v0.58.0
	golang.org/x/net v0.62.0
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	golang.org/x/time v0.16.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/quic-go/quic-go => ./quic-go
