// Command argo-rules judges an object as Argo does, for tests: with the libraries that Argo has it from, and no server.
//
//	argo-rules wait SUCCESS FAILURE < object.json    as an Argo Workflow waits for a resource
//	argo-rules retry EXPRESSION < scope.json         as it decides whether a step is tried again
//	argo-rules health SCRIPT < object.json           as Argo CD asks a health script; prints its table
//
// Argo Workflows reads a condition as a label selector whose keys are gjson's paths: one requirement of the failure
// condition is enough to fail, and it is asked first; of the success condition all are needed.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/expr-lang/expr"
	"github.com/tidwall/gjson"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/labels"
)

// object lets a selector look into JSON, where it expects labels.
type object []byte

func (o object) Has(path string) bool   { return gjson.GetBytes(o, path).Exists() }
func (o object) Get(path string) string { return gjson.GetBytes(o, path).String() }
func (o object) Lookup(path string) (string, bool) {
	found := gjson.GetBytes(o, path)
	return found.String(), found.Exists()
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	switch {
	case len(arguments) == 3 && arguments[0] == "wait":
		return wait(input, arguments[1], arguments[2])
	case len(arguments) == 2 && arguments[0] == "retry":
		return retry(input, arguments[1])
	case len(arguments) == 2 && arguments[0] == "health":
		return health(input, arguments[1])
	}
	return fmt.Errorf("argo-rules wait SUCCESS FAILURE, retry EXPRESSION or health SCRIPT; JSON comes by standard input")
}

func wait(input []byte, success, failure string) error {
	succeeds, err := labels.Parse(success)
	if err != nil {
		return fmt.Errorf("success condition %q: %w", success, err)
	}
	fails, err := labels.Parse(failure)
	if err != nil {
		return fmt.Errorf("failure condition %q: %w", failure, err)
	}
	failures, _ := fails.Requirements()
	for _, requirement := range failures {
		if requirement.Matches(object(input)) {
			fmt.Println("failed")
			return nil
		}
	}
	if succeeds.Matches(object(input)) {
		fmt.Println("succeeded")
	} else {
		fmt.Println("waiting")
	}
	return nil
}

func retry(input []byte, expression string) error {
	var scope map[string]any
	if err := json.Unmarshal(input, &scope); err != nil {
		return err
	}
	program, err := expr.Compile(expression, expr.Env(scope), expr.AsBool())
	if err != nil {
		return err
	}
	again, err := expr.Run(program, scope)
	if err != nil {
		return err
	}
	fmt.Println(again)
	return nil
}

func health(input []byte, script string) error {
	var decoded any
	if err := json.Unmarshal(input, &decoded); err != nil {
		return err
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	// Of Lua's libraries, a health script of a ConfigMap is given these.
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		call := lua.P{Fn: state.NewFunction(library.open), Protect: true}
		if err := state.CallByParam(call, lua.LString(library.name)); err != nil {
			return err
		}
	}
	state.SetGlobal("obj", value(state, decoded))
	if err := state.DoString(script); err != nil {
		return err
	}
	table, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return fmt.Errorf("the script returned %s, Argo CD wants a table", state.Get(-1).Type())
	}
	told := map[string]string{}
	table.ForEach(func(key, word lua.LValue) { told[key.String()] = word.String() })
	return json.NewEncoder(os.Stdout).Encode(told)
}

func value(state *lua.LState, decoded any) lua.LValue {
	switch known := decoded.(type) {
	case bool:
		return lua.LBool(known)
	case float64:
		return lua.LNumber(known)
	case string:
		return lua.LString(known)
	case []any:
		table := state.NewTable()
		for _, entry := range known {
			table.Append(value(state, entry))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, entry := range known {
			table.RawSetString(key, value(state, entry))
		}
		return table
	}
	return lua.LNil
}
