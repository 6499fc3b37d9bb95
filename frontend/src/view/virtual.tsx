/** A list of which only the rows in sight are in the document. */
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useReducer, useRef } from "preact/hooks";

interface Props {
  readonly count: number;
  readonly rowHeight: number;
  readonly class: string;
  readonly role: "listbox" | "list";
  readonly label: string;
  /** The row to keep in sight, if any. */
  readonly focus?: number | undefined;
  /** The id of the selected row, for a screen reader. */
  readonly active?: string | undefined;
  readonly tabIndex?: number;
  readonly onKeyDown?: (event: KeyboardEvent) => void;
  readonly children: (index: number) => ComponentChildren;
}

export function VirtualList(props: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const virtual = useRef<Virtualizer<HTMLDivElement, Element> | undefined>(undefined);
  const options = {
    count: props.count,
    getScrollElement: () => scroller.current,
    estimateSize: () => props.rowHeight,
    overscan: 6,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw(0),
  };
  virtual.current ??= new Virtualizer(options);
  virtual.current.setOptions(options);
  useEffect(() => {
    const unmount = virtual.current!._didMount();
    virtual.current!._willUpdate();
    redraw(0);
    return unmount;
  }, []);
  useEffect(() => virtual.current!._willUpdate());
  useEffect(() => {
    if (props.focus !== undefined && props.focus >= 0 && props.focus < props.count) virtual.current!.scrollToIndex(props.focus, { align: "auto" });
  }, [props.focus]);
  return (
    <div class={props.class} ref={scroller} role={props.role} aria-label={props.label} aria-activedescendant={props.active} tabIndex={props.tabIndex ?? -1} onKeyDown={props.onKeyDown}>
      <div style={{ height: `${virtual.current.getTotalSize()}px`, position: "relative" }} role="presentation">
        {virtual.current.getVirtualItems().map((item) => (
          <div key={item.key} role="presentation" style={{ position: "absolute", insetInline: 0, height: `${item.size}px`, transform: `translateY(${item.start}px)` }}>
            {props.children(item.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
