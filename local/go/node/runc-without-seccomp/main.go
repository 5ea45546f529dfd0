// Command runc-without-seccomp takes the seccomp profile out of a bundle and then becomes runc.
//
// A runc that was built without libseccomp refuses every container with a profile, so that no pod with
// `seccompProfile: RuntimeDefault` would start. With this in front of it such pods start, without the profile.
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

func main() {
	if err := start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runc-without-seccomp:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	if slices.Contains(args, "create") || slices.Contains(args, "run") {
		if err := dropProfile(filepath.Join(bundle(args), "config.json")); err != nil {
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

// dropProfile keeps every other part of the file as it was written: fields that this program has never heard of too.
func dropProfile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec, linux map[string]json.RawMessage
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := json.Unmarshal(spec["linux"], &linux); err != nil {
		return fmt.Errorf("%s: linux: %w", path, err)
	}
	if _, present := linux["seccomp"]; !present {
		return nil
	}
	delete(linux, "seccomp")
	if spec["linux"], err = json.Marshal(linux); err != nil {
		return err
	}
	if text, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
