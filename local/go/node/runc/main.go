// Command runc prepares a bundle's config.json for the node and then becomes the real runc.
//
// It does two things. It puts the mounts in the order of their depth: containerd places those of its base spec
// first, so that a volume on /tmp would hide a shared folder below /tmp. And where the real runc was built without
// libseccomp, it takes the seccomp profile out: such a runc refuses every container that has one, so that no pod
// with `seccompProfile: RuntimeDefault` would start.
// The real runc lies beside this program, under the name runc-plain.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// dropSeccomp is set to "true" by the linker where runc-plain cannot apply profiles.
var dropSeccomp = "false"

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runc (of oarlock-local):", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	if slices.Contains(args, "create") || slices.Contains(args, "run") {
		if err := prepare(filepath.Join(bundle(args), "config.json")); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runc := filepath.Join(filepath.Dir(self), "runc-plain")
	return syscall.Exec(runc, append([]string{runc}, args...), os.Environ())
}

// bundle is the folder that the arguments of `runc create` name, by default the current one.
func bundle(args []string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || (name != "bundle" && name != "b") {
			continue
		}
		if joined {
			return value
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return "."
}

// prepare keeps every other part of the file as it was written: fields that this program has never heard of too.
func prepare(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if spec["mounts"], err = byDepth(spec["mounts"]); err != nil {
		return fmt.Errorf("%s: mounts: %w", path, err)
	}
	if dropSeccomp == "true" {
		if spec["linux"], err = withoutSeccomp(spec["linux"]); err != nil {
			return fmt.Errorf("%s: linux: %w", path, err)
		}
	}
	if text, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// byDepth keeps the order of mounts of the same depth.
func byDepth(text json.RawMessage) (json.RawMessage, error) {
	var mounts []map[string]json.RawMessage
	if err := json.Unmarshal(text, &mounts); err != nil {
		return nil, err
	}
	depth := func(mount map[string]json.RawMessage) int {
		return strings.Count(filepath.Clean(strings.Trim(string(mount["destination"]), `"`)), "/")
	}
	slices.SortStableFunc(mounts, func(a, b map[string]json.RawMessage) int { return depth(a) - depth(b) })
	return json.Marshal(mounts)
}

func withoutSeccomp(text json.RawMessage) (json.RawMessage, error) {
	var linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &linux); err != nil {
		return nil, err
	}
	delete(linux, "seccomp")
	return json.Marshal(linux)
}
