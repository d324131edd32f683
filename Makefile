# SPDX-License-Identifier: Apache-2.0
# Each target first installs what it needs (scripts/install-deps).

export PATH := $(shell scripts/tool-path)
# GOFLAGS of the caller's environment shall not change what is built.
export GOFLAGS :=

bquic := package/bquic-gateway
wifirr := package/wifirr-sched
include version.mk

.PHONY: help root build demo test coverage test-quick bench bench-browsers bench-flows bench-sessions lint packages feed release clean

help: # this list
	@awk -F ':.*# ' '/^[a-z%-]+:.*# / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
	@scripts/test --list | sed 's/^/make test-/'
	@echo "bench-%: $$(scripts/bench --list)"

# Before anything is installed for somebody who cannot go on.
root:
	@[ "$$(id -u)" = 0 ] || { echo "must be root, for network namespaces: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

# Programs that are running cannot be written to, so new ones take their places.
build: deps-build # bquic and wifirrd for this machine, in build/
	scripts/build-bquic build/bquic
	$(MAKE) -C $(wifirr)/src VERSION=$(PKG_VERSION)
	cp $(wifirr)/src/wifirrd build/wifirrd.new
	mv build/wifirrd.new build/wifirrd

demo: root deps-demo build # the mesh in namespaces: what BQUIC gains, in a table; a crowded cell (5 minutes, root)
	lab/demo
	lab/demo-crowd

test: root deps-test # everything that can be checked (15 to 25 minutes on two cores, root)
	scripts/test

coverage: root deps-test # test, with how much of the Go and C sources it reaches (an hour, root)
	scripts/test --coverage

test-quick: deps-lint # for the inner loop: lint of what has changed, tests that need neither root nor namespaces (2 minutes)
	scripts/test-quick

test-%: root deps-test # one part of test
	scripts/test $*

bench: root deps-bench build # the quick set of measurements, and docs/results.md (30 minutes, root)
	scripts/bench

bench-browsers bench-flows bench-sessions: bench-%: root deps-browsers build
	scripts/bench $*

bench-%: deps-bench build # all of one measurement; bench-full: of all (a day)
	scripts/bench $*

lint: deps-lint # shell, Go, Python, licence lines
	scripts/test-lint

packages: deps-packages # OpenWrt packages, for opkg and for apk, in dist/<arch>/
	scripts/build-packages

# KEYS is made the first time. Who loses it has to give every router a new one.
KEYS ?= $(HOME)/.config/bquic-feed
URL ?=
feed: deps-packages # the packages as a signed feed, in dist/ (URL=where it will be found)
	scripts/build-packages --keys "$(KEYS)" --url "$(URL)"

release: deps-packages # a release of what was committed last: the feed, sources, checksums, a bill of materials, in dist/
	scripts/release --keys "$(KEYS)" --url "$(URL)"

clean: # removes what was built, not what was installed
	rm -rf build dist $(bquic)/src/quic-go
	-$(MAKE) -C $(wifirr)/src clean

deps-%:
	@scripts/install-deps $*
