package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// describe returns a line for each exported identifier, field and method of a package. A
// line begins with its name. A line that is removed or changed may break programs; a line
// that is added breaks none.
func describe(p *types.Package) (lines []string) {
	d := describer{p}
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		add := func(format string, args ...any) {
			lines = append(lines, p.Name()+"."+name+fmt.Sprintf(format, args...))
		}
		switch o := object.(type) {
		case *types.Const:
			add(" const %s = %s", d.text(o.Type()), o.Val().ExactString())
		case *types.Var:
			add(" var %s", d.text(o.Type()))
		case *types.Func:
			add(" %s%s", d.parameters(o.Signature().TypeParams()), d.text(o.Type()))
		case *types.TypeName:
			for _, line := range d.typeLines(o) {
				add("%s", line)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

type describer struct{ of *types.Package }

// parameters returns a list of type parameters, "" if it is empty.
func (d describer) parameters(list *types.TypeParamList) string {
	if list.Len() == 0 {
		return ""
	}
	var all []string
	for i := range list.Len() {
		all = append(all, list.At(i).Obj().Name()+" "+d.text(list.At(i).Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "] "
}

// text returns a type without the names of parameters, which programs cannot depend on.
func (d describer) text(t types.Type) string {
	return types.TypeString(unnamed(t), func(other *types.Package) string {
		if other == d.of {
			return ""
		}
		return other.Name()
	})
}

func (d describer) typeLines(o *types.TypeName) (lines []string) {
	if o.IsAlias() {
		return []string{" = " + d.text(types.Unalias(o.Type()))}
	}
	named := o.Type().(*types.Named)
	parameters := ""
	if named.TypeParams().Len() > 0 {
		parameters = " " + strings.TrimSpace(d.parameters(named.TypeParams()))
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		lines = append(lines, parameters+" struct")
		if types.Comparable(named) {
			lines = append(lines, parameters+" comparable")
		}
		for i := range u.NumFields() {
			if f := u.Field(i); f.Exported() {
				kind := "field"
				if f.Embedded() {
					kind = "embedded"
				}
				lines = append(lines, fmt.Sprintf(".%s %s %s", f.Name(), kind, d.text(f.Type())))
			}
		}
	case *types.Interface:
		lines = append(lines, d.interfaceLines(u)...)
	default:
		lines = append(lines, parameters+" type "+d.text(u))
	}
	if _, is := named.Underlying().(*types.Interface); is {
		return lines
	}
	pointer := types.NewMethodSet(types.NewPointer(named))
	values := types.NewMethodSet(named)
	for i := range pointer.Len() {
		m := pointer.At(i).Obj()
		if !m.Exported() {
			continue
		}
		receiver := "*" + o.Name()
		if values.Lookup(m.Pkg(), m.Name()) != nil {
			receiver = o.Name()
		}
		lines = append(lines, fmt.Sprintf(".%s method (%s) %s", m.Name(), receiver, d.text(pointer.At(i).Type())))
	}
	return lines
}

// interfaceLines lists the methods of an interface. A method that is added breaks those who
// implement it, so that the first line has all names, unless nobody outside can implement it.
func (d describer) interfaceLines(u *types.Interface) (lines []string) {
	var names []string
	sealed := false
	for i := range u.NumMethods() {
		m := u.Method(i)
		if !m.Exported() {
			sealed = true
			continue
		}
		names = append(names, m.Name())
		lines = append(lines, fmt.Sprintf(".%s method %s", m.Name(), d.text(m.Type())))
	}
	if sealed {
		return append(lines, " sealed interface")
	}
	if !u.IsMethodSet() {
		return append(lines, " constraint "+d.text(u))
	}
	return append(lines, " interface { "+strings.Join(names, ", ")+" }")
}

// unnamed returns a type whose functions have no names of parameters.
func unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		return types.NewSignatureType(nil, nil, nil, tuple(t.Params()), tuple(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(unnamed(t.Elem()))
	case *types.Array:
		return types.NewArray(unnamed(t.Elem()), t.Len())
	case *types.Map:
		return types.NewMap(unnamed(t.Key()), unnamed(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), unnamed(t.Elem()))
	}
	return t
}

func tuple(t *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for i := range t.Len() {
		vars = append(vars, types.NewParam(0, nil, "", unnamed(t.At(i).Type())))
	}
	return types.NewTuple(vars...)
}
