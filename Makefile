# The only entry point one needs; each target calls a script that works alone too.
.PHONY: help demo test check bench format lint asan tsan core docs install
help:    ## this list
	@grep -hE '^[a-z]+: *##' $(MAKEFILE_LIST) | sed 's/: *## /\t/'
demo:    ## install packages, build, train on real images
	./scripts/demo.sh
test:    ## install packages, build, run every test
	./scripts/test.sh
check:   ## what CI runs
	bash .ci/run
core:    ## build and test the half without torch
	./scripts/build.sh core && ctest --test-dir build/core --output-on-failure
bench:   ## the figures of docs/results.md
	./scripts/bench.sh
format:  ## clang-format in place
	./scripts/format.sh
lint:    ## format, includes
	./scripts/format.sh --check && ./scripts/check_includes.py
asan:    ## tests under the address and undefined-behaviour sanitizers
	./scripts/build.sh asan && ctest --preset asan
tsan:    ## tests under the thread sanitizer
	./scripts/build.sh tsan && ctest --preset tsan
docs:    ## what the documentation takes from the program
	./scripts/build.sh release pipedream && ./build/release/pipedream schedule --document > docs/schedules.md
install: ## install the release build (PREFIX=/usr/local)
	./scripts/build.sh release && cmake --install build/release --prefix $(or $(PREFIX),/usr/local)
